"""The specs that a RayService had are on record when their clusters are gone."""

import pytest

from common import errors, labels
from common.api.opaque import Body
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER
from scenario.service_reconciler.world import World, a_running_world
from support.builders.ray_service import NAME, a_cluster_config, a_serve_config
from support.fakes.kube import Request

IMAGES = [f"rayproject/ray:2.5{number}.0" for number in range(2, 10)]


def records(world: World) -> list[Body]:
    """Return the records of the RayService's specs, oldest first."""
    found = [each for each in world.kube.all(CONTROLLER_REVISION) if each["metadata"]["name"].startswith("demo-goal-")]
    return sorted(found, key=lambda each: each["revision"])


def images(world: World) -> list[str]:
    """Return the head's image of each record."""
    specs = [each["data"]["spec"]["rayClusterConfig"] for each in records(world)]
    return [each["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] for each in specs]


def asked(world: World, since: int) -> list[str]:
    """Return the verbs of requests about such records."""
    about = [each for each in world.kube.requests[since:] if each.kind == CONTROLLER_REVISION.kind]
    return [each.verb for each in about if "goal" in each.name]


async def upgrade(world: World, image: str, **fields: object) -> None:
    """Let the service go to another image, and its old cluster go."""
    old = world.active
    world.apply(config=a_cluster_config(image=image), rayClusterDeletionDelaySeconds=1, **fields)
    await world.until(lambda: world.is_settled() and world.active != old)
    await world.until(lambda: world.clusters == [world.active])


async def test_a_spec_outlives_its_cluster() -> None:
    world = await a_running_world()
    await upgrade(world, IMAGES[1], serve=a_serve_config(message="v2"))
    old, new = records(world)
    assert images(world) == IMAGES[:2]
    assert old["data"]["spec"]["serveConfigV2"] == a_serve_config()
    assert new["metadata"]["annotations"] == {"raybus.io/replaces": old["metadata"]["name"]}
    (owner,) = old["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (
        "RayService",
        world.service["metadata"]["uid"],
        True,
    )
    assert labels.CLUSTER not in old["metadata"]["labels"]


async def test_a_change_of_the_goal_costs_one_list_and_one_write_and_rest_costs_nothing() -> None:
    world = await a_running_world()
    for image in IMAGES[1:4]:
        done = len(world.kube.requests)
        await upgrade(world, image)
        assert asked(world, done) == ["list", "create"]
        done = len(world.kube.requests)
        await world.run(600)
        world.restart()
        await world.run(60)
        assert asked(world, done) == []


async def test_it_is_recorded_before_the_cluster_is_made() -> None:
    world = await a_running_world()
    writes = world.kube.writes()
    assert writes.index(f"create ControllerRevision {records(world)[0]['metadata']['name']}") < next(
        number for number, each in enumerate(writes) if each.startswith("create RayCluster")
    )


async def test_what_was_changed_in_place_is_recorded_when_it_is_replaced() -> None:
    world = await a_running_world()
    world.apply(serve=a_serve_config(message="v2"))
    await world.run(8)
    assert len(records(world)) == 1
    await upgrade(world, IMAGES[1])
    served = [each["data"]["spec"]["serveConfigV2"] for each in records(world)]
    assert served == [a_serve_config(message=each) for each in ("v1", "v2", "v1")]
    assert images(world) == [IMAGES[0], IMAGES[0], IMAGES[1]]


async def test_a_spec_that_comes_back_is_the_newest_again() -> None:
    world = await a_running_world()
    await upgrade(world, IMAGES[1])
    await upgrade(world, IMAGES[0])
    assert images(world) == [IMAGES[1], IMAGES[0]]
    assert records(world)[1]["metadata"]["annotations"]["raybus.io/replaces"] == records(world)[0]["metadata"]["name"]


async def test_a_reverted_upgrade_writes_nothing_more() -> None:
    world = await a_running_world()
    world.holds_pods = True
    world.apply(config=a_cluster_config(image=IMAGES[1]))
    await world.run(3)
    done = len(world.kube.requests)
    world.apply()
    await world.run(30)
    assert (world.pending, asked(world, done)) == ("", [])


async def test_a_cluster_that_somebody_deleted_is_made_anew_without_a_write() -> None:
    world = await a_running_world()
    done, gone = len(world.kube.requests), world.active
    await world.kube.delete(RAY_CLUSTER, "default", gone)
    await world.until(lambda: world.is_settled() and world.active != gone)
    assert asked(world, done) == ["list"]


async def test_the_user_says_how_many_are_kept() -> None:
    world = await a_running_world()
    for image in IMAGES[1:5]:
        await upgrade(world, image, annotations={labels.HISTORY_LIMIT: "2"})
    assert images(world) == IMAGES[2:5]


async def test_a_refusal_is_told_and_holds_no_upgrade_up() -> None:
    world = await a_running_world()

    def refuse(request: Request) -> errors.RaybusError | None:
        is_record = request.verb == "create" and request.kind == CONTROLLER_REVISION.kind and "-goal-" in request.name
        return errors.Forbidden("exceeded quota: few") if is_record else None

    world.kube.faults.append(refuse)
    await upgrade(world, IMAGES[1])
    notes = [(kind, note) for kind, reason, note in world.kube.events() if reason == "SpecNotRecorded"]
    text = "The spec is not recorded, so 'raybus undo' cannot go back to it later: exceeded quota: few"
    assert notes == [("Warning", text)]


async def test_an_api_server_that_is_away_for_a_moment_costs_no_record() -> None:
    world = await a_running_world()
    left = [errors.Unavailable("no answer"), errors.Unavailable("no answer")]

    def fail(request: Request) -> errors.RaybusError | None:
        is_record = request.verb == "create" and request.kind == CONTROLLER_REVISION.kind and "-goal-" in request.name
        return left.pop() if is_record and left else None

    world.kube.faults.append(fail)
    await upgrade(world, IMAGES[1])
    assert images(world) == IMAGES[:2]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_process_that_dies_anywhere_in_a_change_records_each_spec_once(side: str, number: int) -> None:
    world = await a_running_world()
    setattr(world, f"kill_{side}", world.writes + number)
    await upgrade(world, IMAGES[1])
    assert images(world) == IMAGES[:2]
    assert [each["revision"] for each in records(world)] == [1, 2]


async def test_the_first_upgrade_after_another_operator_records_what_that_one_left() -> None:
    world = await a_running_world()
    for each in world.kube.all(CONTROLLER_REVISION):
        await world.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
    world.restart()
    await upgrade(world, IMAGES[1])
    assert images(world) == IMAGES[:2]


async def test_records_of_an_earlier_service_of_that_name_are_not_ours() -> None:
    world = World()
    marks = {labels.ORIGIN_NAME: NAME, labels.ORIGIN_KIND: "RayService", "raybus.io/record": "goal"}
    owner = [{"kind": "RayService", "name": NAME, "uid": "of-an-earlier-one", "controller": True}]
    old = {"metadata": {"name": "demo-goal-0", "labels": marks, "ownerReferences": owner}, "revision": 9}
    world.kube.put(CONTROLLER_REVISION, old)
    world.apply()
    await world.until(world.is_settled)
    assert [each["revision"] for each in records(world)] == [1, 9]
