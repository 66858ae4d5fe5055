from typing import Any

import pytest

from cluster_reconciler import plan
from cluster_reconciler.actions import CreateWorker
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import workers
from cluster_reconciler.pods.workers import GroupDecision
from common.feature_gates import BETA, FeatureGate
from common.ray import cluster_traits as traits
from common.runtime.actions import Delete
from support.builders.pods import a_head_pod, a_pod, an_observation, some_workers
from support.builders.ray_cluster import a_group, a_ray_cluster, first_group
from support.tables import cases


def decide(
    *pods: Any,
    may_shrink: bool = True,
    max_changes: int = plan.BATCH_SIZE,
    has_indexes: bool = True,
    awaited: tuple[str, ...] = (),
    **group: Any,
) -> GroupDecision:
    cluster = a_ray_cluster(groups=[a_group(**group)], enable_in_tree_autoscaling=not may_shrink)
    config = Config(gates=BETA if has_indexes else BETA - {FeatureGate.MULTI_HOST_INDEXING})
    going = frozenset(f"uid-{name}" for name in awaited)
    observed: Observed = an_observation(
        *pods, cluster=cluster, config=config, pending_deletions=going
    )
    return workers.decide(observed, first_group(cluster), max_changes=max_changes)


def gone(decision: GroupDecision) -> list[str]:
    return [each.name for each in decision.deletions]


def created(decision: GroupDecision) -> list[int]:
    return list(decision.creations)


@cases(
    ("group", "target"),
    {
        "replicas as written": ({"replicas": 3}, 3),
        "at most maxReplicas": ({"replicas": 20, "max_replicas": 10}, 10),
        "at least minReplicas": ({"replicas": 0, "min_replicas": 2}, 2),
        "minReplicas when none are written": ({"replicas": None, "min_replicas": 2}, 2),
        "no limit": ({"replicas": 3, "max_replicas": None}, 3),
        "times hosts": ({"replicas": 2, "num_of_hosts": 4}, 8),
        "0 hosts count as 1": ({"replicas": 2, "num_of_hosts": 0}, 2),
        "hosts pruned by an older CRD": ({"replicas": 2, "num_of_hosts": None}, 2),
        "a negative number counts as 1": ({"replicas": 2, "num_of_hosts": -1}, 2),
        "suspended": ({"replicas": 3, "suspend": True}, 0),
    },
)
@pytest.mark.acceptance("raycluster", 52, 53, 62)
def test_target(group: dict[str, Any], target: int) -> None:
    assert traits.target(first_group(a_ray_cluster(groups=[a_group(**group)]))) == target


def test_a_new_group_gets_all_its_pods() -> None:
    assert created(decide(replicas=3)) == [0, 1, 2]


@pytest.mark.acceptance("raycluster", 51)
def test_a_missing_index_is_filled_first() -> None:
    assert created(decide(a_pod("w0", index=0), a_pod("w2", index=2), replicas=4)) == [1, 3]


def test_a_label_that_is_no_number_is_passed_over() -> None:
    odd = a_pod("w0")
    odd.metadata.labels["ray.io/worker-group-replica-index"] = "one"
    assert created(decide(odd, replicas=2)) == [0]


@pytest.mark.acceptance("raycluster", 72)
def test_without_the_gate_places_are_not_counted() -> None:
    assert created(decide(replicas=2, has_indexes=False)) == [0, 0]


def test_surplus_pods_go_by_name() -> None:
    assert gone(decide(*some_workers(4), replicas=2)) == ["w0", "w1"]


def test_of_surplus_pods_those_go_first_that_are_not_ready_and_then_the_newest() -> None:
    pods = (
        a_pod("w0", age=90),
        a_pod("w1", age=10),
        a_pod("w2", age=60),
        a_pod("w3", age=99, ready="False"),
    )
    assert gone(decide(*pods, replicas=2)) == ["w3", "w1"]
    assert gone(decide(*pods, replicas=3)) == ["w3"]


def test_a_surplus_pod_that_is_going_already_counts_first() -> None:
    pods = (*some_workers(2), a_pod("w9", terminating=True))
    assert gone(decide(*pods, replicas=2)) == []


@pytest.mark.acceptance("raycluster", 54)
def test_surplus_pods_stay_when_the_autoscaler_chooses() -> None:
    assert decide(*some_workers(4), replicas=2, may_shrink=False).deletions == ()


def test_terminating_pods_count_until_they_are_gone() -> None:
    assert created(decide(a_pod("w0", index=0, terminating=True), replicas=1)) == []


@pytest.mark.acceptance("raycluster", 56)
def test_named_pods_go_although_replicas_match_and_are_replaced() -> None:
    decision = decide(*some_workers(3), replicas=3, scale_strategy={"workersToDelete": ["w1"]})
    assert (gone(decision), created(decision)) == (["w1"], [1])


@pytest.mark.acceptance("raycluster", 57)
def test_a_name_that_nobody_has_is_ignored() -> None:
    decision = decide(*some_workers(3), replicas=3, scale_strategy={"workersToDelete": ["other"]})
    assert (gone(decision), created(decision)) == ([], [])


@pytest.mark.acceptance("raycluster", 58)
def test_the_head_cannot_be_named() -> None:
    assert gone(decide(a_head_pod(), scale_strategy={"workersToDelete": ["c-head-x"]})) == []


@pytest.mark.acceptance("raycluster", 59)
def test_unhealthy_pods_go_and_are_replaced_only_later() -> None:
    pods = (a_pod("w0", phase="Failed"), a_pod("w1", phase="Succeeded"), a_pod("w2"))
    decision = decide(*pods, replicas=3)
    assert (gone(decision), created(decision)) == (["w0", "w1"], [])
    assert decision.unfinished == "delete 2 unhealthy worker Pods"


@pytest.mark.acceptance("raycluster", 65)
def test_nothing_happens_while_a_pod_that_we_deleted_is_still_there() -> None:
    decision = decide(a_pod("w0", terminating=True), replicas=5, awaited=("w0",))
    assert (decision.deletions, decision.creations) == ((), ())


@pytest.mark.acceptance("raycluster", 62)
def test_a_suspended_group_is_deleted_in_one_request_and_only_once() -> None:
    assert decide(*some_workers(2), suspend=True).deletes_all
    assert not decide(*some_workers(2, terminating=True), suspend=True).deletes_all
    assert not decide(suspend=True).deletes_all


def test_a_pod_that_another_group_names_is_replaced_by_its_own_in_the_same_plan() -> None:
    """Otherwise the cluster would count as provisioned while only the remaining pods run."""
    names = [
        a_group("a", replicas=0, scale_strategy={"workersToDelete": ["b-0"]}),
        a_group("b", replicas=1),
    ]
    observed = an_observation(
        a_head_pod(), a_pod("b-0", group="b"), cluster=a_ray_cluster(groups=names)
    )
    actions = [
        each for some in plan.make_plan(observed, observed.now).actions for each in some.actions
    ]
    assert [each.name for each in actions if isinstance(each, Delete)] == ["b-0"]
    assert [each.pods.group.group_name for each in actions if isinstance(each, CreateWorker)] == [
        "b"
    ]


class CountedPods(tuple[Any, ...]):
    """Pods that count how often code iterates over all of them."""

    __slots__ = ()
    passes = 0

    def __iter__(self) -> Any:
        CountedPods.passes += 1
        return super().__iter__()


def test_the_pods_are_gone_through_once_however_many_groups_name_some() -> None:
    """A thousand groups and ten thousand pods, both within the limits, once blocked the event loop
    for 340 ms at each reconcile.
    """
    names = [f"g{number}" for number in range(50)]
    spec = [a_group(each, scale_strategy={"workersToDelete": [f"{each}-0"]}) for each in names]
    cluster = a_ray_cluster(groups=spec)
    pods = [a_pod(f"{each}-0", group=each) for each in names]
    observed = an_observation(*pods, cluster=cluster)
    vars(observed)["workers"] = CountedPods(observed.workers)
    groups = cluster.spec.worker_group_specs or []
    decisions = [workers.decide(observed, group, max_changes=plan.BATCH_SIZE) for group in groups]
    assert [gone(each) for each in decisions] == [[f"{each}-0"] for each in names]
    assert CountedPods.passes == 1
