"""A blue/green upgrade whose old cluster drains: what is written when, and what ends it."""

from common import labels
from common.kube.resources import POD
from common.ray.ongoing import Ongoing
from scenario.service_reconciler.world import World, story
from support.builders.ray_service import a_cluster_config
from support.golden import Golden

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
ON = {labels.GRACEFUL_DRAIN: "true"}


async def an_upgraded_world(*, ongoing: int | Ongoing | None, delay: int = 20, **annotations: str) -> tuple[World, str]:
    """Return a world right after promotion, and its old cluster."""
    world = World()
    asked = ON | {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    world.apply(annotations=asked, rayClusterDeletionDelaySeconds=delay)
    await world.until(world.is_settled)
    old = world.active
    world.serve.head(f"{old}-head-svc").ongoing = ongoing
    world.apply(config=GREEN, annotations=asked, rayClusterDeletionDelaySeconds=delay)
    await world.run(1)
    await world.until(world.is_settled)
    await world.run(0.5)
    return world, old


def drain_notes(world: World) -> list[str]:
    return [note for _, reason, note in world.kube.events() if reason == "DrainEnded"]


async def test_the_old_pods_are_marked_at_once_and_only_they(golden: Golden) -> None:
    world, old = await an_upgraded_world(ongoing=0)
    marked = {
        pod["metadata"]["name"]
        for pod in world.kube.all(POD)
        if pod["metadata"]["annotations"].get(labels.DRAINING) == "true"
    }
    assert marked == {f"{old}-head", f"{old}-worker"}
    await world.run(60)
    assert world.clusters == [world.active]
    golden.check("service_reconciler/graceful_drain.txt", story(world))


async def test_it_goes_when_the_last_request_is_answered() -> None:
    world, old = await an_upgraded_world(ongoing=2)
    await world.run(40)
    assert old in world.clusters
    world.serve.head(f"{old}-head-svc").ongoing = 0
    await world.run(2)
    assert old not in world.clusters
    assert drain_notes(world) == [f"RayCluster default/{old} was deleted with 0 requests in flight"]


async def test_the_cap_ends_it_with_requests_in_flight() -> None:
    world, old = await an_upgraded_world(ongoing=2, drain_timeout="10s")
    await world.run(25)
    assert old in world.clusters
    await world.run(15)
    assert old not in world.clusters
    assert drain_notes(world)[0].startswith(f"RayCluster default/{old} was deleted with ")


async def test_who_does_not_tell_is_given_the_whole_time() -> None:
    world, old = await an_upgraded_world(ongoing=None)
    await world.run(75)
    assert old in world.clusters
    await world.run(15)
    assert old not in world.clusters
    assert drain_notes(world) == [f"RayCluster default/{old} was deleted with an unknown number of requests in flight"]


async def test_a_restart_forgets_neither_the_drain_nor_its_cap() -> None:
    world, old = await an_upgraded_world(ongoing=5, drain_timeout="30")
    await world.run(35)
    world.restart()
    await world.run(10)
    assert old in world.clusters
    await world.run(15)
    assert old not in world.clusters
    assert world.reasons().count("DrainStarted") == 1


async def test_a_pod_that_joins_late_is_marked_too() -> None:
    world, old = await an_upgraded_world(ongoing=0)
    marks = {labels.CLUSTER: old, labels.NODE_TYPE: "worker"}
    world.kube.put(
        POD,
        {
            "metadata": {"name": f"{old}-late", "labels": marks, "annotations": ON},
            "spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.52.0"}]},
        },
    )
    await world.run(5)
    late = world.kube.objects[(POD.kind, "default", f"{old}-late")]
    assert late["metadata"]["annotations"][labels.DRAINING] == "true"


async def test_behind_ha_proxy_it_waits_for_requests_that_only_the_replicas_know_of() -> None:
    draining = Ongoing(replicas=1, has_ha_proxy=True, has_older=True)  # of the head and of the worker, each
    world, old = await an_upgraded_world(ongoing=draining, drain_timeout="30")
    await world.run(60)
    assert old not in world.clusters
    assert drain_notes(world) == [f"RayCluster default/{old} was deleted with 2 requests in flight"]


async def test_behind_ha_proxy_numbers_settle_for_longer() -> None:
    world, old = await an_upgraded_world(ongoing=Ongoing(has_ha_proxy=True), delay=0)
    await world.run(20)
    assert old in world.clusters
    await world.run(10)
    assert old not in world.clusters


async def test_a_time_out_that_cannot_be_read_is_told() -> None:
    world, _ = await an_upgraded_world(ongoing=0, drain_timeout="soon")
    (note,) = [note for _, reason, note in world.kube.events() if reason == "DrainStarted"]
    assert 'raybus.io/drain-timeout "soon" is neither a duration such as 90s nor a number of seconds' in note
