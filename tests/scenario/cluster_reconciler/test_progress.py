"""How often the status is written while a cluster comes up: pods that get ready one after the other share a write."""

from typing import Any

from cluster_reconciler.report import GATHERED_FOR
from common.api.opaque import Body
from common.kube.resources import POD
from scenario.cluster_reconciler.world import NAMESPACE, World
from support.builders.ray_cluster import a_ray_cluster

READY: Body = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}


async def a_new_world() -> World:
    world = World()
    world.apply(a_ray_cluster())
    await world.settle()
    await world.pass_time(GATHERED_FOR.total_seconds())
    return world


async def make_ready(world: World, *names: str, status: Body = READY) -> None:
    for name in names:
        world.kube.set_status(POD, NAMESPACE, name, status)
        await world.settle()


def status_writes(world: World) -> int:
    return sum("/status" in str(request) for request in world.kube.requests)


def reported(world: World) -> Any:
    return world.cluster().status.ready_worker_replicas


async def test_pods_that_get_ready_one_by_one_take_two_writes_in_all() -> None:
    world = await a_new_world()
    await make_ready(world, *world.names("head"), *world.names("worker"))
    assert world.cluster().status.state == "ready"
    assert status_writes(world) == 2


async def test_pods_that_are_ready_before_the_beginning_is_told_take_one_write() -> None:
    world = World()
    world.apply(a_ray_cluster())
    await world.settle()
    await make_ready(world, *world.names("head"), *world.names("worker"))
    assert (world.cluster().status.state, status_writes(world)) == ("ready", 1)


async def test_progress_is_told_after_a_moment_though_others_are_still_to_come() -> None:
    world = await a_new_world()
    await make_ready(world, *world.names("head"), world.names("worker")[0])
    assert reported(world) == 0
    await world.pass_time(GATHERED_FOR.total_seconds())
    assert reported(world) == 1
    assert world.conditions()["HeadPodReady"][0] == "True"


async def test_a_worker_that_is_lost_is_told_at_once() -> None:
    world = await a_new_world()
    await make_ready(world, *world.names("head"), *world.names("worker"))
    lost: Body = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    await make_ready(world, world.names("worker")[0], status=lost)
    assert reported(world) == len(world.names("worker")) - 1
