"""The specs that a RayService had are on record when their clusters are gone."""

import pytest

from common import errors, labels
from common.api.opaque import Body
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import NAME, a_cluster_config, a_serve_config
from support.fakes.kube import Request

IMAGES = [f"rayproject/ray:2.5{number}.0" for number in range(2, 10)]


def records(harness: Harness) -> list[Body]:
    """Return the records of the RayService's specs, oldest first."""
    found = [
        each
        for each in harness.kube.all(CONTROLLER_REVISION)
        if each["metadata"]["name"].startswith("demo-goal-")
    ]
    return sorted(found, key=lambda each: each["revision"])


def images(harness: Harness) -> list[str]:
    """Return the head's image of each record."""
    specs = [each["data"]["spec"]["rayClusterConfig"] for each in records(harness)]
    return [each["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] for each in specs]


def asked(harness: Harness, since: int) -> list[str]:
    """Return the verbs of requests about such records."""
    about = [
        each for each in harness.kube.requests[since:] if each.kind == CONTROLLER_REVISION.kind
    ]
    return [each.verb for each in about if "goal" in each.name and not each.is_dry_run]


async def upgrade(harness: Harness, image: str, **fields: object) -> None:
    """Let the service go to another image, and its old cluster go."""
    old = harness.active
    harness.apply(config=a_cluster_config(image=image), rayClusterDeletionDelaySeconds=1, **fields)
    await harness.until(lambda: harness.is_complete() and harness.active != old)
    await harness.until(lambda: harness.clusters == [harness.active])


async def test_a_spec_outlives_its_cluster() -> None:
    harness = await a_running_harness()
    await upgrade(harness, IMAGES[1], serve=a_serve_config(message="v2"))
    old, new = records(harness)
    assert images(harness) == IMAGES[:2]
    assert old["data"]["spec"]["serveConfigV2"] == a_serve_config()
    assert new["metadata"]["annotations"] == {"raybus.io/replaces": old["metadata"]["name"]}
    (owner,) = old["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "RayService",
        harness.service["metadata"]["uid"],
        True,
    )
    assert labels.CLUSTER not in old["metadata"]["labels"]


async def test_a_change_of_the_goal_costs_one_list_and_one_write_and_rest_costs_nothing() -> None:
    harness = await a_running_harness()
    for image in IMAGES[1:4]:
        done = len(harness.kube.requests)
        await upgrade(harness, image)
        assert asked(harness, done) == ["list", "create"]
        done = len(harness.kube.requests)
        await harness.run(600)
        harness.restart()
        await harness.run(60)
        assert asked(harness, done) == []


async def test_it_is_recorded_before_the_cluster_is_made() -> None:
    harness = await a_running_harness()
    writes = harness.kube.writes()
    assert writes.index(
        f"create ControllerRevision {records(harness)[0]['metadata']['name']}"
    ) < next(number for number, each in enumerate(writes) if each.startswith("create RayCluster"))


async def test_what_was_changed_in_place_is_recorded_when_it_is_replaced() -> None:
    harness = await a_running_harness()
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.run(8)
    assert len(records(harness)) == 1
    await upgrade(harness, IMAGES[1])
    served = [each["data"]["spec"]["serveConfigV2"] for each in records(harness)]
    assert served == [a_serve_config(message=each) for each in ("v1", "v2", "v1")]
    assert images(harness) == [IMAGES[0], IMAGES[0], IMAGES[1]]


async def test_a_spec_that_comes_back_is_the_newest_again() -> None:
    harness = await a_running_harness()
    await upgrade(harness, IMAGES[1])
    await upgrade(harness, IMAGES[0])
    assert images(harness) == [IMAGES[1], IMAGES[0]]
    assert (
        records(harness)[1]["metadata"]["annotations"]["raybus.io/replaces"]
        == records(harness)[0]["metadata"]["name"]
    )


async def test_a_reverted_upgrade_writes_nothing_more() -> None:
    harness = await a_running_harness()
    harness.holds_pods = True
    harness.apply(config=a_cluster_config(image=IMAGES[1]))
    await harness.run(3)
    done = len(harness.kube.requests)
    harness.apply()
    await harness.run(30)
    assert (harness.pending, asked(harness, done)) == ("", [])


async def test_a_cluster_that_somebody_deleted_is_made_anew_without_a_write() -> None:
    harness = await a_running_harness()
    done, gone = len(harness.kube.requests), harness.active
    await harness.kube.delete(RAY_CLUSTER, "default", gone)
    await harness.until(lambda: harness.is_complete() and harness.active != gone)
    assert asked(harness, done) == ["list"]


async def test_the_user_sets_how_many_are_kept() -> None:
    harness = await a_running_harness()
    for image in IMAGES[1:5]:
        await upgrade(harness, image, annotations={labels.HISTORY_LIMIT: "2"})
    assert images(harness) == IMAGES[2:5]


async def test_a_refusal_is_reported_and_delays_no_upgrade() -> None:
    harness = await a_running_harness()

    def refuse(request: Request) -> errors.RaybusError | None:
        is_record = (
            request.verb == "create"
            and request.kind == CONTROLLER_REVISION.kind
            and "-goal-" in request.name
        )
        return errors.Forbidden("exceeded quota: few") if is_record else None

    harness.kube.faults.append(refuse)
    await upgrade(harness, IMAGES[1])
    notes = [
        (kind, note) for kind, reason, note in harness.kube.events() if reason == "SpecNotRecorded"
    ]
    text = (
        "The spec is not recorded, so 'raybus undo' cannot go back to it later: exceeded quota: few"
    )
    assert notes == [("Warning", text)]


async def test_an_api_server_that_is_away_for_a_moment_costs_no_record() -> None:
    harness = await a_running_harness()
    left = [errors.Unavailable("no answer"), errors.Unavailable("no answer")]

    def fail(request: Request) -> errors.RaybusError | None:
        is_record = (
            request.verb == "create"
            and request.kind == CONTROLLER_REVISION.kind
            and "-goal-" in request.name
        )
        return left.pop() if is_record and left else None

    harness.kube.faults.append(fail)
    await upgrade(harness, IMAGES[1])
    assert images(harness) == IMAGES[:2]


async def test_a_refusal_begins_the_count_of_failures_anew() -> None:
    harness = await a_running_harness()
    away, refused = errors.Unavailable("no answer"), errors.Forbidden("exceeded quota: few")
    left: list[errors.RaybusError] = [away, away, away, away, refused, away, away, away, away]

    def fail(request: Request) -> errors.RaybusError | None:
        is_record = (
            request.verb == "create"
            and request.kind == CONTROLLER_REVISION.kind
            and "-goal-" in request.name
        )
        return left.pop() if is_record and left else None

    harness.kube.faults.append(fail)
    await upgrade(harness, IMAGES[1])
    await upgrade(harness, IMAGES[2])
    notes = [note for _, reason, note in harness.kube.events() if reason == "SpecNotRecorded"]
    assert [note.rpartition(": ")[2] for note in notes] == ["few"]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_process_that_dies_anywhere_in_a_change_records_each_spec_once(
    side: str, number: int
) -> None:
    harness = await a_running_harness()
    setattr(harness, f"kill_{side}", harness.writes + number)
    await upgrade(harness, IMAGES[1])
    assert images(harness) == IMAGES[:2]
    assert [each["revision"] for each in records(harness)] == [1, 2]


async def test_the_first_upgrade_after_another_operator_records_what_that_one_left() -> None:
    harness = await a_running_harness()
    for each in harness.kube.all(CONTROLLER_REVISION):
        await harness.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
    harness.restart()
    await upgrade(harness, IMAGES[1])
    assert images(harness) == IMAGES[:2]


async def test_records_of_an_earlier_service_of_that_name_are_not_ours() -> None:
    harness = Harness()
    marks = {labels.ORIGIN_NAME: NAME, labels.ORIGIN_KIND: "RayService", "raybus.io/record": "goal"}
    owner = [{"kind": "RayService", "name": NAME, "uid": "of-an-earlier-one", "controller": True}]
    old = {
        "metadata": {"name": "demo-goal-0", "labels": marks, "ownerReferences": owner},
        "revision": 9,
    }
    harness.kube.put(CONTROLLER_REVISION, old)
    harness.apply()
    await harness.until(harness.is_complete)
    assert [each["revision"] for each in records(harness)] == [1, 9]
