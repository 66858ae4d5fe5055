"""The specs that a RayService had are on record when their clusters are gone."""

from collections.abc import Sequence

import pytest

from common import errors, labels
from common.api.opaque import Body
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER
from support.builders.ray_service import NAME, a_cluster_config, a_serve_config
from support.fakes.kube import Request, refusing
from support.simulator.simulator import Simulator, a_running_simulator

IMAGES = [f"rayproject/ray:2.5{number}.0" for number in range(2, 10)]


def records(sim: Simulator) -> list[Body]:
    """Return the records of the RayService's specs, oldest first."""
    found = [
        each
        for each in sim.kube.all(CONTROLLER_REVISION)
        if each["metadata"]["name"].startswith("demo-goal-")
    ]
    return sorted(found, key=lambda each: each["revision"])


def images(sim: Simulator) -> list[str]:
    """Return the head's image of each record."""
    specs = [each["data"]["spec"]["rayClusterConfig"] for each in records(sim)]
    return [each["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] for each in specs]


def asked(sim: Simulator, since: int) -> list[str]:
    """Return the verbs of requests about such records."""
    about = [each for each in sim.kube.requests[since:] if each.kind == CONTROLLER_REVISION.kind]
    return [each.verb for each in about if "goal" in each.name and not each.is_dry_run]


async def upgrade(sim: Simulator, image: str, **fields: object) -> None:
    """Let the service go to another image, and its old cluster go."""
    old = sim.active
    sim.apply(config=a_cluster_config(image=image), rayClusterDeletionDelaySeconds=1, **fields)
    await sim.until(lambda: sim.is_complete() and sim.active != old)
    await sim.until(lambda: sim.clusters == [sim.active])


async def test_a_spec_outlives_its_cluster() -> None:
    sim = await a_running_simulator()
    await upgrade(sim, IMAGES[1], serve=a_serve_config(message="v2"))
    old, new = records(sim)
    assert images(sim) == IMAGES[:2]
    assert old["data"]["spec"]["serveConfigV2"] == a_serve_config()
    assert new["metadata"]["annotations"] == {"raybus.io/replaces": old["metadata"]["name"]}
    (owner,) = old["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "RayService",
        sim.service["metadata"]["uid"],
        True,
    )
    assert labels.CLUSTER not in old["metadata"]["labels"]


async def test_a_change_of_the_goal_costs_one_list_and_one_write_and_rest_costs_nothing() -> None:
    sim = await a_running_simulator()
    for image in IMAGES[1:4]:
        done = len(sim.kube.requests)
        await upgrade(sim, image)
        assert asked(sim, done) == ["list", "create"]
        done = len(sim.kube.requests)
        await sim.run(600)
        sim.restart()
        await sim.run(60)
        assert asked(sim, done) == []


async def test_it_is_recorded_before_the_cluster_is_made() -> None:
    sim = await a_running_simulator()
    writes = sim.kube.writes()
    assert writes.index(f"create ControllerRevision {records(sim)[0]['metadata']['name']}") < next(
        number for number, each in enumerate(writes) if each.startswith("create RayCluster")
    )


async def test_what_was_changed_in_place_is_recorded_when_it_is_replaced() -> None:
    sim = await a_running_simulator()
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.run(8)
    assert len(records(sim)) == 1
    await upgrade(sim, IMAGES[1])
    served = [each["data"]["spec"]["serveConfigV2"] for each in records(sim)]
    assert served == [a_serve_config(message=each) for each in ("v1", "v2", "v1")]
    assert images(sim) == [IMAGES[0], IMAGES[0], IMAGES[1]]


async def test_a_spec_that_comes_back_is_the_newest_again() -> None:
    sim = await a_running_simulator()
    await upgrade(sim, IMAGES[1])
    await upgrade(sim, IMAGES[0])
    assert images(sim) == [IMAGES[1], IMAGES[0]]
    assert (
        records(sim)[1]["metadata"]["annotations"]["raybus.io/replaces"]
        == records(sim)[0]["metadata"]["name"]
    )


async def test_a_reverted_upgrade_writes_nothing_more() -> None:
    sim = await a_running_simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(config=a_cluster_config(image=IMAGES[1]))
    await sim.run(3)
    done = len(sim.kube.requests)
    sim.apply()
    await sim.run(30)
    assert (sim.pending, asked(sim, done)) == ("", [])


async def test_a_cluster_that_somebody_deleted_is_made_anew_without_a_write() -> None:
    sim = await a_running_simulator()
    done, gone = len(sim.kube.requests), sim.active
    await sim.kube.delete(RAY_CLUSTER, "default", gone)
    await sim.until(lambda: sim.is_complete() and sim.active != gone)
    assert asked(sim, done) == ["list"]


async def test_the_user_sets_how_many_are_kept() -> None:
    sim = await a_running_simulator()
    for image in IMAGES[1:5]:
        await upgrade(sim, image, annotations={labels.HISTORY_LIMIT: "2"})
    assert images(sim) == IMAGES[2:5]


async def test_a_refusal_is_reported_and_delays_no_upgrade() -> None:
    sim = await a_running_simulator()
    quota = errors.Forbidden("exceeded quota: few")
    sim.kube.faults.append(refusing("create", CONTROLLER_REVISION.kind, quota, name="-goal-"))
    await upgrade(sim, IMAGES[1])
    notes = [
        (kind, note) for kind, reason, note in sim.kube.events() if reason == "SpecNotRecorded"
    ]
    text = (
        "The spec is not recorded, so 'raybus undo' cannot go back to it later: exceeded quota: few"
    )
    assert notes == [("Warning", text)]


def fail_records(sim: Simulator, problems: Sequence[errors.RaybusError]) -> None:
    """Let the next writes of a record fail with these errors."""
    left = [*problems]

    def fail(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", CONTROLLER_REVISION.kind)
        return left.pop(0) if left and is_creation and "-goal-" in request.name else None

    sim.kube.faults.append(fail)


async def test_an_api_server_that_is_away_for_a_moment_costs_no_record() -> None:
    sim = await a_running_simulator()
    fail_records(sim, [errors.Unavailable("no answer")] * 2)
    await upgrade(sim, IMAGES[1])
    assert images(sim) == IMAGES[:2]


async def test_a_refusal_begins_the_count_of_failures_anew() -> None:
    sim = await a_running_simulator()
    away, refused = errors.Unavailable("no answer"), errors.Forbidden("exceeded quota: few")
    fail_records(sim, [*[away] * 4, refused, *[away] * 4])
    await upgrade(sim, IMAGES[1])
    await upgrade(sim, IMAGES[2])
    notes = [note for _, reason, note in sim.kube.events() if reason == "SpecNotRecorded"]
    assert [note.rpartition(": ")[2] for note in notes] == ["few"]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_process_that_dies_anywhere_in_a_change_records_each_spec_once(
    side: str, number: int
) -> None:
    sim = await a_running_simulator()
    setattr(sim, f"kill_{side}", sim.writes.count + number)
    await upgrade(sim, IMAGES[1])
    assert images(sim) == IMAGES[:2]
    assert [each["revision"] for each in records(sim)] == [1, 2]


async def test_the_first_upgrade_after_another_operator_records_what_that_one_left() -> None:
    sim = await a_running_simulator()
    for each in sim.kube.all(CONTROLLER_REVISION):
        await sim.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
    sim.restart()
    await upgrade(sim, IMAGES[1])
    assert images(sim) == IMAGES[:2]


async def test_records_of_an_earlier_service_of_that_name_are_not_ours() -> None:
    sim = Simulator()
    marks = {labels.ORIGIN_NAME: NAME, labels.ORIGIN_KIND: "RayService", "raybus.io/record": "goal"}
    owner = [{"kind": "RayService", "name": NAME, "uid": "of-an-earlier-one", "controller": True}]
    old = {
        "metadata": {"name": "demo-goal-0", "labels": marks, "ownerReferences": owner},
        "revision": 9,
    }
    sim.kube.put(CONTROLLER_REVISION, old)
    sim.apply()
    await sim.until(sim.is_complete)
    assert [each["revision"] for each in records(sim)] == [1, 9]
