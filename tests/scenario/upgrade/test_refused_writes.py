"""Writes that only accompany an upgrade may be refused for ever: they cost an Event, never a cluster, a promotion or a step."""

from collections.abc import Callable
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import a_group, a_strategy
from support.fakes.kube import Request

FAST = a_strategy(surge=100, step=100, interval=1)
BLUE_GREEN = {"type": "NewCluster"}
REFUSED = errors.Rejected('admission webhook "policy.example.com" denied the request')
FAILING = errors.Unavailable('failed calling webhook "policy.example.com": timeout')


def refuse(
    harness: Pair, matches: Callable[[Request], bool], problem: errors.RaybusError = REFUSED
) -> list[Request]:
    """Refuse some writes from now on; return those that were tried."""
    tried: list[Request] = []

    def fault(request: Request) -> errors.RaybusError | None:
        if not matches(request):
            return None
        tried.append(request)
        return problem

    harness.kube.faults.append(fault)
    return tried


def annotates(kind: str, name: str) -> Callable[[Request], bool]:
    def matches(request: Request) -> bool:
        held: Json = (
            request.body.get("metadata", {}).get("annotations", {})
            if request.verb == "patch"
            else {}
        )
        return request.kind == kind and request.verb == "patch" and name in held

    return matches


def events_of(harness: Pair, reason: str) -> list[tuple[str, str]]:
    return [(kind, note) for kind, found, note in harness.kube.events() if found == reason]


@pytest.mark.parametrize("problem", [REFUSED, FAILING], ids=["denied", "failing"])
async def test_a_receipt_that_is_refused_keeps_no_cluster(problem: errors.RaybusError) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = harness.active
    tried = refuse(harness, annotates("RayService", labels.UPGRADE_RECEIPT), problem)
    harness.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await harness.until(lambda: blue not in harness.clusters, seconds=60)
    await harness.run(60)
    assert len(tried) <= 2
    [(kind, note)] = events_of(harness, "ReceiptNotWritten")
    assert kind == "Warning"
    assert (
        f"The receipt of the upgrade from {blue} to {harness.active} is not written: {problem}"
        in note
    )
    assert events_of(harness, "UpgradeReceipt") == []


async def test_the_receipts_of_two_clusters_that_cannot_be_deleted_do_not_replace_each_other() -> (
    None
):
    harness = Pair()
    harness.apply(upgradeStrategy=BLUE_GREEN, rayClusterDeletionDelaySeconds=20)
    await harness.until(harness.is_complete)
    for config in (GREEN, RED):
        before = harness.active
        harness.apply(config=config, upgradeStrategy=BLUE_GREEN, rayClusterDeletionDelaySeconds=20)
        await harness.until(
            lambda before=before: harness.is_complete() and harness.active != before, seconds=60
        )
    refuse(harness, lambda request: (request.verb, request.kind) == ("delete", "RayCluster"))
    await harness.until(lambda: len(events_of(harness, "UpgradeReceipt")) == 2, seconds=60)
    version = harness.service["metadata"]["resourceVersion"]
    await harness.run(10)
    assert harness.service["metadata"]["resourceVersion"] == version
    assert harness.active in harness.service["metadata"]["annotations"][labels.UPGRADE_RECEIPT]
    assert len(harness.clusters) == 3


async def test_pods_that_cannot_be_marked_keep_no_cluster() -> None:
    wanted = {"annotations": {labels.GRACEFUL_DRAIN: "true"}, "upgradeStrategy": BLUE_GREEN}
    harness = await a_running_blue_green(**wanted)
    blue = harness.active
    tried = refuse(harness, annotates("Pod", labels.DRAINING))
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=5, **wanted)
    await harness.until(lambda: blue not in harness.clusters, seconds=120)
    assert tried
    assert events_of(harness, "DrainNotTold")[0][0] == "Warning"


async def test_a_head_that_cannot_be_labelled_keeps_no_old_cluster() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    harness.serve.head(f"{harness.active}-head-svc").proxy_is_healthy = False
    tried = refuse(harness, lambda request: (request.verb, request.kind) == ("patch", "Pod"))
    await harness.until(lambda: blue not in harness.clusters, seconds=60)
    assert tried
    assert len(tried) < 60


async def test_a_quota_that_the_old_cluster_fills_is_not_waited_for_by_its_deletion() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = harness.active
    full = errors.Forbidden("exceeded quota: rayclusters")
    refuse(
        harness,
        lambda each: (
            (each.verb, each.kind) == ("create", "RayCluster") and len(harness.clusters) >= 2
        ),
        full,
    )
    harness.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    green = harness.active
    harness.apply(config=RED, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await harness.until(
        lambda: harness.is_complete() and harness.active not in {blue, green}, seconds=120
    )
    assert blue not in harness.clusters


@pytest.mark.parametrize("problem", [REFUSED, FAILING], ids=["denied", "failing"])
async def test_a_spec_that_cannot_be_recorded_prevents_no_cluster(
    problem: errors.RaybusError,
) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    refuse(
        harness,
        lambda each: each.kind == "ControllerRevision" and "-goal-" in (each.name or ""),
        problem,
    )
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    assert events_of(harness, "SpecNotRecorded")


async def test_a_cluster_that_cannot_grow_gets_its_config_and_its_status_all_the_same() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    refuse(harness, lambda each: (each.verb, each.kind) == ("patch", "RayCluster"))
    before = harness.status["observedGeneration"]
    harness.apply(
        config={**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], a_group("more")]},
        upgradeStrategy=FAST,
    )
    await harness.run(5)
    assert harness.status["observedGeneration"] > before
    assert events_of(harness, "FailedToUpdateRayCluster")


async def test_a_deadline_that_cannot_be_written_is_reported() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = harness.active
    refuse(harness, annotates("RayCluster", "raybus.io/delete-after"))
    harness.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    await harness.run(5)
    [(kind, note)] = events_of(harness, "FailedToUpdateRayCluster")
    assert (kind, note.startswith(f"Failed to update the old RayCluster default/{blue}: ")) == (
        "Warning",
        True,
    )
    assert blue in [each["metadata"]["name"] for each in harness.kube.all(RAY_CLUSTER)]


async def a_running_blue_green(**fields: Any) -> Pair:
    harness = Pair()
    harness.apply(**fields)
    await harness.until(harness.is_complete)
    return harness
