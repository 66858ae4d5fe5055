"""PodDisruptionBudgets follow their RayCluster where it asks for them, and leave with the wish (ADR 26)."""

from datetime import timedelta
from typing import Any

import pytest

from cluster_reconciler.config import Config
from common import errors, labels
from common.api.meta import rfc3339
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, POD_DISRUPTION_BUDGET, RAY_CLUSTER
from scenario.cluster_reconciler.harness import NAMESPACE, Harness, a_running_harness
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.tables import cases

BY_DEFAULT = Config(limits_disruption=True)
ASKED = {labels.DISRUPTION_BUDGET: "true"}
REDIS = {"redisAddress": "redis:6379"}


def limited(
    replicas: int = 3, *, annotations: dict[str, str] | None = None, **fields: Any
) -> RayCluster:
    given = ASKED if annotations is None else annotations
    return a_ray_cluster(groups=[a_group(replicas=replicas)], annotations=given, **fields)


def least(harness: Harness) -> dict[str, int]:
    """Return how many pods each budget leaves."""
    found = harness.kube.all(POD_DISRUPTION_BUDGET, NAMESPACE)
    return {each["metadata"]["name"]: each["spec"]["minAvailable"] for each in found}


def annotate(harness: Harness, **annotations: str | None) -> None:
    known = harness.kube.objects["RayCluster", NAMESPACE, "c"]
    held = {
        **known["metadata"]["annotations"],
        **{f"raybus.io/{name.replace('_', '-')}": each for name, each in annotations.items()},
    }
    meta = {
        **known["metadata"],
        "annotations": {name: value for name, value in held.items() if value is not None},
    }
    harness.kube.put(RAY_CLUSTER, {**known, "metadata": meta})


def set_ready(harness: Harness, pod: Body, status: str) -> None:
    """Let the kubelet report of a running pod whether it is ready."""
    ready = {"type": "Ready", "status": status, "lastTransitionTime": rfc3339(harness.clock.now())}
    harness.kube.set_status(
        POD, NAMESPACE, pod["metadata"]["name"], {**pod["status"], "conditions": [ready]}
    )


def noted(harness: Harness) -> list[str]:
    return [note for _, reason, note in harness.kube.events() if "DisruptionBudget" in reason]


async def test_a_cluster_that_does_not_ask_has_none_and_costs_no_request() -> None:
    harness = await a_running_harness(limited(annotations={}))
    await harness.pass_time(300)
    assert least(harness) == {}
    assert not [each for each in harness.kube.requests if each.kind == "PodDisruptionBudget"]


async def test_one_worker_may_go_at_a_time_and_the_head_may_not() -> None:
    harness = await a_running_harness(limited(4))
    assert least(harness) == {"c-head": 1, "c-worker": 3}
    head, workers = harness.kube.all(POD_DISRUPTION_BUDGET, NAMESPACE)
    assert head["spec"]["selector"] == {
        "matchLabels": {labels.CLUSTER: "c", labels.NODE_TYPE: "head"}
    }
    assert workers["spec"]["selector"] == {
        "matchLabels": {labels.CLUSTER: "c", labels.NODE_TYPE: "worker"}
    }
    assert {each["spec"]["unhealthyPodEvictionPolicy"] for each in (head, workers)} == {
        "AlwaysAllow"
    }
    assert {each["metadata"]["ownerReferences"][0]["name"] for each in (head, workers)} == {"c"}


@cases(
    ("cluster", "expected"),
    {
        "the last worker": (limited(1), {"c-head": 1, "c-worker": 1}),
        "no worker": (limited(0), {"c-head": 1}),
        "a head with a state that survives it": (
            limited(3, gcs_fault_tolerance_options=REDIS),
            {"c-worker": 2},
        ),
        "such a head that serves alone": (
            limited(0, gcs_fault_tolerance_options=REDIS),
            {"c-head": 1},
        ),
        "suspended": (limited(3, suspend=True), {}),
        "a replaced one, with requests in flight": (
            limited(3, annotations={**ASKED, labels.DELETE_AFTER: "2027-01-01T00:00:00Z"}),
            {"c-head": 1, "c-worker": 2},
        ),
        "another value": (limited(3, annotations={labels.DISRUPTION_BUDGET: "no"}), {}),
    },
)
async def test_what_has_a_budget(cluster: RayCluster, expected: dict[str, int]) -> None:
    assert least(await a_running_harness(cluster)) == expected


@pytest.mark.parametrize(("value", "count"), [(None, 2), ("true", 2), ("false", 0)])
async def test_the_annotation_wins_over_the_operators_default(
    value: str | None, count: int
) -> None:
    annotations = {} if value is None else {labels.DISRUPTION_BUDGET: value}
    assert (
        len(least(await a_running_harness(limited(annotations=annotations), BY_DEFAULT))) == count
    )


async def test_the_budget_follows_the_replicas_and_the_event_names_it() -> None:
    harness = await a_running_harness(limited(3))
    annotations = harness.cluster().metadata.annotations
    harness.apply(limited(5, annotations=annotations))
    await harness.settle()
    assert least(harness) == {"c-head": 1, "c-worker": 4}
    assert noted(harness) == ["Updated PodDisruptionBudget ns/c-worker"]


@pytest.mark.parametrize("value", ["false", None])
async def test_all_go_with_the_wish_and_nothing_is_left_of_them(value: str | None) -> None:
    harness = await a_running_harness(limited())
    assert harness.cluster().metadata.annotations[labels.HAS_BUDGETS] == "true"
    annotate(harness, disruption_budget=value)
    await harness.settle()
    assert least(harness) == {}
    assert labels.HAS_BUDGETS not in harness.cluster().metadata.annotations
    harness.kube.requests.clear()
    await harness.pass_time(300)
    assert not [each for each in harness.kube.requests if each.kind == "PodDisruptionBudget"]


async def test_a_wish_that_ends_while_no_process_runs_is_followed_by_the_next_one() -> None:
    harness = await a_running_harness(limited(annotations={}), BY_DEFAULT)
    harness.config = Config()
    harness.start()
    await harness.settle()
    assert least(harness) == {}


async def test_the_mark_is_there_before_the_first_budget_and_goes_after_the_last() -> None:
    harness = Harness()
    harness.apply(limited())
    await harness.settle()
    writes = harness.kube.writes()
    assert writes.index("patch RayCluster c") < writes.index("create PodDisruptionBudget c-head")
    annotate(harness, disruption_budget="false")
    await harness.settle()
    changes = [
        each for each in harness.kube.writes() if "Budget" in each or each == "patch RayCluster c"
    ]
    assert changes[-1] == "patch RayCluster c"


async def test_without_the_mark_no_budget_is_created() -> None:
    """Otherwise a death right after it would leave a budget that is not listed."""
    harness = Harness()
    harness.kube.faults.append(
        lambda each: (
            errors.Forbidden("boom")
            if (each.verb, each.kind, each.subresource) == ("patch", "RayCluster", None)
            else None
        )
    )
    harness.apply(limited())
    await harness.settle()
    assert least(harness) == {}
    assert len(harness.names()) == 4, "pods are created all the same"


async def test_a_mark_that_a_user_replaces_does_not_keep_the_budgets() -> None:
    harness = await a_running_harness(limited())
    harness.apply(limited(annotations={}))
    await harness.settle()
    assert least(harness) == {}


async def test_what_was_deleted_or_changed_by_hand_comes_back() -> None:
    harness = await a_running_harness(limited())
    await harness.app.observer.kube.delete(POD_DISRUPTION_BUDGET, NAMESPACE, "c-head")
    changed = harness.kube.all(POD_DISRUPTION_BUDGET, NAMESPACE)[0]
    await harness.app.observer.kube.replace(
        POD_DISRUPTION_BUDGET, NAMESPACE, {**changed, "spec": {"maxUnavailable": 1}}
    )
    await harness.pass_time(300)
    await harness.settle()
    assert least(harness) == {"c-head": 1, "c-worker": 2}


async def test_at_rest_they_are_listed_once_in_300_seconds_and_never_written() -> None:
    harness = await a_running_harness(limited())
    for _ in range(3):
        await harness.pass_time(301)
    found = [each.verb for each in harness.kube.requests if each.kind == "PodDisruptionBudget"]
    assert set(found) == {"list"}
    assert len(found) <= 4


async def test_a_budget_of_another_owner_is_left_alone_and_reported_and_pods_are_created() -> None:
    harness = Harness()
    theirs = harness.kube.put(
        POD_DISRUPTION_BUDGET,
        {
            "metadata": {"name": "c-head", "namespace": NAMESPACE, "labels": {labels.CLUSTER: "c"}},
            "spec": {"maxUnavailable": 1},
        },
    )
    harness.apply(limited())
    await harness.settle()
    assert harness.kube.objects["PodDisruptionBudget", NAMESPACE, "c-head"] == theirs
    assert len(harness.names()) == 4
    assert any(
        "PodDisruptionBudget ns/c-head already exists and is not owned by RayCluster ns/c" in each
        for each in noted(harness)
    )


async def test_a_worker_without_a_replica_blocks_no_other_ones_eviction() -> None:
    """Serve's proxy on a node without a replica is not ready: such a pod would hold back each drain for ever."""
    harness = await a_running_harness(limited(4))
    set_ready(harness, harness.pods("worker")[0], "False")
    await harness.settle()
    assert least(harness)["c-worker"] == 3, "it may be ready in a moment"
    harness.clock.advance(timedelta(minutes=10).total_seconds())
    await harness.pass_time(300)
    assert least(harness)["c-worker"] == 2
    set_ready(harness, harness.pods("worker")[0], "True")
    await harness.settle()
    assert least(harness)["c-worker"] == 3


async def test_an_evicted_worker_does_not_lower_the_budget_of_the_others() -> None:
    harness = await a_running_harness(limited(4))
    harness.kube.graceful_pods = True
    await harness.app.observer.kube.delete(POD, NAMESPACE, harness.names("worker")[0])
    await harness.settle()
    assert least(harness)["c-worker"] == 3
    harness.finish_deletions()
    await harness.settle()
    await harness.pass_time(700)
    assert least(harness)["c-worker"] == 3, "its successor starts, however long that takes"


async def test_a_deleted_cluster_gets_none() -> None:
    harness = Harness()
    harness.apply(limited(annotations={}))
    known = harness.kube.objects["RayCluster", NAMESPACE, "c"]
    meta = {
        **known["metadata"],
        "annotations": ASKED,
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["x"],
    }
    harness.kube.put(RAY_CLUSTER, {**known, "metadata": meta})
    await harness.settle()
    assert least(harness) == {}
