"""A cluster's size delays only itself: its pods are created and deleted in batches, and there is a limit."""

from typing import Any

import pytest

from cluster_reconciler import plan
from cluster_reconciler.config import Config
from common.runtime.executor import SLICE
from scenario.cluster_reconciler.harness import Harness
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.tables import cases

LARGE = 2 * plan.BATCH_SIZE + 50
"""Number of workers for three batches."""


def of(replicas: int, **group: Any) -> Harness:
    harness = Harness()
    harness.apply(
        a_ray_cluster(groups=[a_group(replicas=replicas, max_replicas=2**31 - 1, **group)])
    )
    return harness


async def reconcile(harness: Harness) -> int:
    """Reconcile once; return how many pods were created and deleted."""
    seen = len(harness.kube.requests)
    await harness.reconcile()
    made = [
        each
        for each in harness.kube.requests[seen:]
        if each.kind == "Pod" and each.verb in {"create", "delete"}
    ]
    return len(made)


async def test_a_large_group_is_created_in_batches_and_the_key_is_requeued_at_once_after_each() -> (
    None
):
    harness = of(LARGE)
    harness.is_deaf = True  # the requeue alone brings the next batch, not the events of the pods
    assert await reconcile(harness) == 1 + plan.BATCH_SIZE
    await harness.settle()
    assert len(harness.names("worker")) == LARGE
    assert await reconcile(harness) == 0


async def test_a_large_group_shrinks_in_batches_which_do_not_wait_for_one_another() -> None:
    harness = of(LARGE)
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    harness.apply(a_ray_cluster(groups=[a_group(replicas=1)]))
    assert [await reconcile(harness) for _ in range(3)] == [plan.BATCH_SIZE, plan.BATCH_SIZE, 49]
    harness.finish_deletions()
    await harness.settle()
    assert len(harness.names("worker")) == 1


async def test_unhealthy_pods_go_in_batches() -> None:
    harness = of(plan.BATCH_SIZE + 10)
    await harness.settle()
    for name in harness.names("worker"):
        harness.fail(name)
    assert await reconcile(harness) == plan.BATCH_SIZE


async def test_replicas_of_several_hosts_are_never_split() -> None:
    harness = of(3, num_of_hosts=plan.BATCH_SIZE - 1)
    assert await reconcile(harness) == 1 + plan.BATCH_SIZE - 1
    assert await reconcile(harness) == plan.BATCH_SIZE - 1
    assert [await reconcile(harness) for _ in range(2)] == [plan.BATCH_SIZE - 1, 0]


async def test_a_replica_larger_than_a_batch_is_created_whole() -> None:
    harness = of(1, num_of_hosts=plan.BATCH_SIZE + 7)
    assert await reconcile(harness) == 1 + plan.BATCH_SIZE + 7
    assert await reconcile(harness) == 0


async def test_replicas_of_several_hosts_shrink_in_batches() -> None:
    harness = of(3, num_of_hosts=plan.BATCH_SIZE - 1)
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    harness.apply(a_ray_cluster(groups=[a_group(replicas=0, num_of_hosts=plan.BATCH_SIZE - 1)]))
    assert [await reconcile(harness) for _ in range(4)] == [plan.BATCH_SIZE - 1] * 3 + [0]


def slow(replicas: int, **group: Any) -> Harness:
    """Return a harness in which each request takes so long that a time slice is over after ten."""
    harness = of(replicas, **group)
    harness.kube.faults.append(lambda _request: harness.clock.advance(SLICE / 10))
    return harness


async def test_a_plan_is_cut_short_after_its_time_slice_and_the_next_reconcile_goes_on() -> None:
    harness = slow(plan.BATCH_SIZE)
    harness.is_deaf = True  # the requeue alone brings the next batch, not the events of the pods
    assert 1 < await reconcile(harness) < 20
    await harness.settle()
    assert len(harness.names("worker")) == plan.BATCH_SIZE
    harness.apply(a_ray_cluster(groups=[a_group(replicas=0)]))
    harness.is_deaf = False
    harness.start()
    assert 1 < await reconcile(harness) < 20
    await harness.settle()
    assert harness.names("worker") == []


@pytest.mark.parametrize("hosts", [2, 3, 30])
async def test_a_replica_of_several_hosts_is_completed_after_the_time_slice(hosts: int) -> None:
    harness = slow(4, num_of_hosts=hosts)
    assert (await reconcile(harness) - 1) % hosts == 0
    await harness.settle()
    assert len(harness.names("worker")) == 4 * hosts
    assert [each for each in harness.trace if each.startswith("delete")] == []


async def test_a_slow_api_server_delays_a_cluster_and_does_not_stop_it() -> None:
    harness = of(3)
    harness.kube.faults.append(lambda _request: harness.clock.advance(2 * SLICE))
    await harness.settle()
    assert len(harness.pods()) == 4


def failure(harness: Harness) -> str:
    return next(
        each.message
        for each in harness.cluster().status.conditions
        if each.type == "ReplicaFailure"
    )


@cases(
    ("group", "setting"),
    {
        "replicas": ({"replicas": 60_000}, "RAYBUS_MAX_PODS_PER_CLUSTER"),
        "the largest integer of the CRD": ({"replicas": 2**31 - 1}, "RAYBUS_MAX_PODS_PER_CLUSTER"),
        "hosts": ({"replicas": 1, "num_of_hosts": 50_000}, "RAYBUS_MAX_HOSTS_PER_REPLICA"),
        "minReplicas": ({"replicas": 0, "min_replicas": 60_000}, "RAYBUS_MAX_PODS_PER_CLUSTER"),
    },
)
async def test_a_cluster_above_the_limit_gets_no_pod_and_names_the_limit(
    group: dict[str, int], setting: str
) -> None:
    harness = of(**group)
    await harness.settle()
    assert harness.pods() == []
    assert harness.conditions()["ReplicaFailure"] == ("True", "LimitExceeded")
    assert setting in failure(harness)
    assert "LimitExceeded" in harness.reasons()
    assert harness.clock.now() not in harness.promised.values()


async def test_a_cluster_with_too_many_groups_gets_no_pod() -> None:
    harness = Harness(Config(max_groups=2))
    harness.apply(a_ray_cluster(groups=[a_group(f"g{number}") for number in range(3)]))
    await harness.settle()
    assert harness.pods() == []
    assert "RAYBUS_MAX_GROUPS_PER_CLUSTER" in failure(harness)


async def test_lowering_replicas_below_the_limit_brings_the_pods_and_takes_the_condition_away() -> (
    None
):
    harness = of(60_000)
    await harness.settle()
    harness.apply(a_ray_cluster(groups=[a_group(replicas=2)]))
    await harness.settle()
    assert len(harness.names("worker")) == 2
    assert "ReplicaFailure" not in harness.conditions()
