from typing import Any

import pytest

from cluster_reconciler import plan
from cluster_reconciler.actions import CreateWorker
from cluster_reconciler.pods import workers
from cluster_reconciler.pods.workers import GroupDecision
from common.api.core import Pod
from support.builders.pods import NOW, a_head_pod, a_pod, actions_of, an_observation
from support.builders.ray_cluster import a_group, a_ray_cluster, first_group


def a_replica(name: str, index: int, hosts: int = 2, **fields: Any) -> list[Pod]:
    return [a_pod(f"{name}-{host}", replica=name, index=index, **fields) for host in range(hosts)]


def decide(
    *pods: Pod, may_shrink: bool = True, max_changes: int = plan.BATCH_SIZE, **group: Any
) -> GroupDecision:
    cluster = a_ray_cluster(
        groups=[a_group(num_of_hosts=2, **group)], enable_in_tree_autoscaling=not may_shrink
    )
    return workers.decide(
        an_observation(*pods, cluster=cluster), first_group(cluster), max_changes=max_changes
    )


def gone(decision: GroupDecision) -> list[str]:
    return [each.name for each in decision.deletions]


def created(decision: GroupDecision) -> list[int]:
    return list(decision.creations)


@pytest.mark.acceptance("raycluster", 67)
def test_a_new_group_gets_whole_replicas() -> None:
    cluster = a_ray_cluster(groups=[a_group(num_of_hosts=2, replicas=2)])
    made = actions_of(plan.make_plan(an_observation(a_head_pod(), cluster=cluster), now=NOW))
    replicas = [each.replica for each in made if isinstance(each, CreateWorker)]
    assert [(each.index, each.host) for each in replicas] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [
        len({each.replica_name for each in replicas if each.index == index}) for index in (0, 1)
    ] == [1, 1]


@pytest.mark.acceptance("raycluster", 68)
def test_an_incomplete_replica_goes_and_nothing_is_created_yet() -> None:
    decision = decide(*a_replica("a", 0), *a_replica("b", 1, hosts=1), replicas=2)
    assert (gone(decision), created(decision)) == (["b-0"], [])
    assert decision.unfinished == "cleaned up incomplete replica group b, requeueing"


@pytest.mark.acceptance("raycluster", 69)
def test_a_host_that_fails_takes_its_replica_along_which_is_replaced_at_once() -> None:
    failed = [
        a_pod("a-0", replica="a", index=0, phase="Failed"),
        a_pod("a-1", replica="a", index=0),
    ]
    decision = decide(*failed, *a_replica("b", 1), replicas=2)
    assert (gone(decision), created(decision)) == (["a-0", "a-1"], [0])


@pytest.mark.acceptance("raycluster", 70)
def test_naming_one_host_deletes_its_replica() -> None:
    decision = decide(
        *a_replica("a", 0),
        *a_replica("b", 1),
        replicas=1,
        scale_strategy={"workersToDelete": ["b-1"]},
    )
    assert (gone(decision), created(decision)) == (["b-0", "b-1"], [])
    assert decision.unfinished == "deleted 2 worker Pods based on ScaleStrategy, requeueing"


def test_a_failed_replica_goes_together_with_a_named_one_and_names_its_failure() -> None:
    failed = [
        a_pod("c-0", replica="c", index=2, phase="Failed"),
        a_pod("c-1", replica="c", index=2),
    ]
    decision = decide(
        *a_replica("a", 0),
        *a_replica("b", 1),
        *failed,
        replicas=3,
        scale_strategy={"workersToDelete": ["b-0", "c-1"]},
    )
    assert (gone(decision), created(decision)) == (["c-0", "c-1", "b-0", "b-1"], [])
    notes = [
        each.events.success.note for each in decision.deletions if each.events.success is not None
    ]
    assert ["terminal state" in note for note in notes] == [True, True, False, False]


@pytest.mark.acceptance("raycluster", 71)
def test_surplus_replicas_go_whole_and_by_name() -> None:
    pods = [*a_replica("b", 1), *a_replica("a", 0)]
    assert gone(decide(*pods, replicas=1)) == ["a-0", "a-1"]
    assert gone(decide(*pods, replicas=1, may_shrink=False)) == []


def test_pods_without_a_replica_name_are_ignored() -> None:
    assert created(decide(a_pod("stray"), replicas=1)) == [0]


def test_of_surplus_replicas_those_go_first_that_are_not_ready_and_then_the_newest() -> None:
    sick = [
        a_pod(f"c-{host}", index=2, replica="c", age=99, ready="False" if host else "True")
        for host in range(2)
    ]
    pods = [*a_replica("a", 0, age=90), *a_replica("b", 1, age=10), *sick]
    assert gone(decide(*pods, replicas=2)) == ["c-0", "c-1"]
    assert gone(decide(*pods, replicas=1)) == ["c-0", "c-1", "b-0", "b-1"]
