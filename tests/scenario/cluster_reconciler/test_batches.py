"""A cluster's size delays only itself: its pods are created and deleted in batches, and there is a limit."""

from typing import Any

import pytest

from cluster_reconciler import limits
from cluster_reconciler.config import Config
from scenario.cluster_reconciler.world import World
from support.builders.ray_cluster import a_group, a_ray_cluster

LARGE = 2 * limits.BATCH + 50
"""Three batches."""


def of(replicas: int, **group: Any) -> World:
    world = World()
    world.apply(a_ray_cluster(groups=[a_group(replicas=replicas, max_replicas=2**31 - 1, **group)]))
    return world


async def reconcile(world: World) -> int:
    """Reconcile once; return how many pods were created and deleted."""
    seen = len(world.kube.requests)
    await world.look()
    made = [each for each in world.kube.requests[seen:] if each.kind == "Pod" and each.verb in {"create", "delete"}]
    return len(made)


async def test_a_large_group_is_created_in_batches_and_the_key_is_requeued_at_once_after_each() -> None:
    world = of(LARGE)
    world.is_deaf = True  # the requeue alone brings the next batch, not the events of the pods
    assert await reconcile(world) == 1 + limits.BATCH
    await world.settle()
    assert len(world.names("worker")) == LARGE
    assert await reconcile(world) == 0


async def test_a_large_group_shrinks_in_batches_which_do_not_wait_for_one_another() -> None:
    world = of(LARGE)
    await world.settle()
    world.kubelet()
    await world.settle()
    world.apply(a_ray_cluster(groups=[a_group(replicas=1)]))
    assert [await reconcile(world) for _ in range(3)] == [limits.BATCH, limits.BATCH, 49]
    world.finish_deletions()
    await world.settle()
    assert len(world.names("worker")) == 1


async def test_unhealthy_pods_go_in_batches() -> None:
    world = of(limits.BATCH + 10)
    await world.settle()
    for name in world.names("worker"):
        world.fail(name)
    assert await reconcile(world) == limits.BATCH


async def test_replicas_of_several_hosts_are_never_split() -> None:
    world = of(3, num_of_hosts=limits.BATCH - 1)
    assert await reconcile(world) == 1 + limits.BATCH - 1
    assert await reconcile(world) == limits.BATCH - 1
    assert [await reconcile(world) for _ in range(2)] == [limits.BATCH - 1, 0]


async def test_a_replica_larger_than_a_batch_is_created_whole() -> None:
    world = of(1, num_of_hosts=limits.BATCH + 7)
    assert await reconcile(world) == 1 + limits.BATCH + 7
    assert await reconcile(world) == 0


async def test_replicas_of_several_hosts_shrink_in_batches() -> None:
    world = of(3, num_of_hosts=limits.BATCH - 1)
    await world.settle()
    world.kubelet()
    await world.settle()
    world.apply(a_ray_cluster(groups=[a_group(replicas=0, num_of_hosts=limits.BATCH - 1)]))
    assert [await reconcile(world) for _ in range(4)] == [limits.BATCH - 1] * 3 + [0]


def failure(world: World) -> str:
    return next(each.message for each in world.cluster().status.conditions if each.type == "ReplicaFailure")


@pytest.mark.parametrize(
    ("group", "setting"),
    [
        pytest.param({"replicas": 60_000}, "RAYBUS_MAX_PODS_PER_CLUSTER", id="replicas"),
        pytest.param({"replicas": 2**31 - 1}, "RAYBUS_MAX_PODS_PER_CLUSTER", id="the largest integer of the CRD"),
        pytest.param({"replicas": 1, "num_of_hosts": 50_000}, "RAYBUS_MAX_HOSTS_PER_REPLICA", id="hosts"),
        pytest.param({"replicas": 0, "min_replicas": 60_000}, "RAYBUS_MAX_PODS_PER_CLUSTER", id="minReplicas"),
    ],
)
async def test_a_cluster_above_the_limit_gets_no_pod_and_names_the_limit(group: dict[str, int], setting: str) -> None:
    world = of(**group)
    await world.settle()
    assert world.pods() == []
    assert world.conditions()["ReplicaFailure"] == ("True", "LimitExceeded")
    assert setting in failure(world)
    assert "LimitExceeded" in world.reasons()
    assert world.clock.now() not in world.promised.values()


async def test_a_cluster_with_too_many_groups_gets_no_pod() -> None:
    world = World(Config(max_groups=2))
    world.apply(a_ray_cluster(groups=[a_group(f"g{number}") for number in range(3)]))
    await world.settle()
    assert world.pods() == []
    assert "RAYBUS_MAX_GROUPS_PER_CLUSTER" in failure(world)


async def test_lowering_replicas_below_the_limit_brings_the_pods_and_takes_the_condition_away() -> None:
    world = of(60_000)
    await world.settle()
    world.apply(a_ray_cluster(groups=[a_group(replicas=2)]))
    await world.settle()
    assert len(world.names("worker")) == 2
    assert "ReplicaFailure" not in world.conditions()
