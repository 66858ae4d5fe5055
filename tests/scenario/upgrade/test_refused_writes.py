"""Writes that only accompany an upgrade may be refused for ever: they cost an Event, never a cluster, a promotion or a step."""

from collections.abc import Callable
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from support.builders.ray_service import a_group, a_strategy
from support.fakes.kube import Request
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_pair, a_running_pair

FAST = a_strategy(surge=100, step=100, interval=1)
BLUE_GREEN = {"type": "NewCluster"}
REFUSED = errors.Rejected('admission webhook "policy.example.com" denied the request')
FAILING = errors.Unavailable('failed calling webhook "policy.example.com": timeout')


def refuse(
    sim: Simulator, matches: Callable[[Request], bool], problem: errors.RaybusError = REFUSED
) -> list[Request]:
    """Refuse some writes from now on; return those that were tried."""
    tried: list[Request] = []

    def fault(request: Request) -> errors.RaybusError | None:
        if not matches(request):
            return None
        tried.append(request)
        return problem

    sim.kube.faults.append(fault)
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


def events_of(sim: Simulator, reason: str) -> list[tuple[str, str]]:
    return [(kind, note) for kind, found, note in sim.kube.events() if found == reason]


@pytest.mark.parametrize("problem", [REFUSED, FAILING], ids=["denied", "failing"])
async def test_a_receipt_that_is_refused_keeps_no_cluster(problem: errors.RaybusError) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = sim.active
    tried = refuse(sim, annotates("RayService", labels.UPGRADE_RECEIPT), problem)
    sim.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await sim.until(lambda: blue not in sim.clusters, seconds=60)
    await sim.run(60)
    assert len(tried) <= 2
    [(kind, note)] = events_of(sim, "ReceiptNotWritten")
    assert kind == "Warning"
    assert (
        f"The receipt of the upgrade from {blue} to {sim.active} is not written: {problem}" in note
    )
    assert events_of(sim, "UpgradeReceipt") == []


async def test_the_receipts_of_two_clusters_that_cannot_be_deleted_do_not_replace_each_other() -> (
    None
):
    sim = a_pair()
    sim.apply(upgradeStrategy=BLUE_GREEN, rayClusterDeletionDelaySeconds=20)
    await sim.until(sim.is_complete)
    for config in (GREEN, RED):
        before = sim.active
        sim.apply(config=config, upgradeStrategy=BLUE_GREEN, rayClusterDeletionDelaySeconds=20)
        await sim.until(
            lambda before=before: sim.is_complete() and sim.active != before, seconds=60
        )
    refuse(sim, lambda request: (request.verb, request.kind) == ("delete", "RayCluster"))
    await sim.until(lambda: len(events_of(sim, "UpgradeReceipt")) == 2, seconds=60)
    version = sim.service["metadata"]["resourceVersion"]
    await sim.run(10)
    assert sim.service["metadata"]["resourceVersion"] == version
    assert sim.active in sim.service["metadata"]["annotations"][labels.UPGRADE_RECEIPT]
    assert len(sim.clusters) == 3


async def test_pods_that_cannot_be_marked_keep_no_cluster() -> None:
    wanted = {"annotations": {labels.GRACEFUL_DRAIN: "true"}, "upgradeStrategy": BLUE_GREEN}
    sim = await a_running_blue_green(**wanted)
    blue = sim.active
    tried = refuse(sim, annotates("Pod", labels.DRAINING))
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=5, **wanted)
    await sim.until(lambda: blue not in sim.clusters, seconds=120)
    assert tried
    assert events_of(sim, "DrainNotTold")[0][0] == "Warning"


async def test_a_head_that_cannot_be_labelled_keeps_no_old_cluster() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    sim.serve.head(f"{sim.active}-head-svc").proxy_is_healthy = False
    tried = refuse(sim, lambda request: (request.verb, request.kind) == ("patch", "Pod"))
    await sim.until(lambda: blue not in sim.clusters, seconds=60)
    assert tried
    assert len(tried) < 60


async def test_a_quota_that_the_old_cluster_fills_is_not_waited_for_by_its_deletion() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = sim.active
    full = errors.Forbidden("exceeded quota: rayclusters")
    refuse(
        sim,
        lambda each: (each.verb, each.kind) == ("create", "RayCluster") and len(sim.clusters) >= 2,
        full,
    )
    sim.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    green = sim.active
    sim.apply(config=RED, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await sim.until(lambda: sim.is_complete() and sim.active not in {blue, green}, seconds=120)
    assert blue not in sim.clusters


@pytest.mark.parametrize("problem", [REFUSED, FAILING], ids=["denied", "failing"])
async def test_a_spec_that_cannot_be_recorded_prevents_no_cluster(
    problem: errors.RaybusError,
) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    refuse(
        sim,
        lambda each: each.kind == "ControllerRevision" and "-goal-" in (each.name or ""),
        problem,
    )
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    assert events_of(sim, "SpecNotRecorded")


async def test_a_cluster_that_cannot_grow_gets_its_config_and_its_status_all_the_same() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    refuse(sim, lambda each: (each.verb, each.kind) == ("patch", "RayCluster"))
    before = sim.status["observedGeneration"]
    sim.apply(
        config={**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], a_group("more")]},
        upgradeStrategy=FAST,
    )
    await sim.run(5)
    assert sim.status["observedGeneration"] > before
    assert events_of(sim, "FailedToUpdateRayCluster")


async def test_a_deadline_that_cannot_be_written_is_reported() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = sim.active
    refuse(sim, annotates("RayCluster", "raybus.io/delete-after"))
    sim.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    await sim.run(5)
    [(kind, note)] = events_of(sim, "FailedToUpdateRayCluster")
    assert (kind, note.startswith(f"Failed to update the old RayCluster default/{blue}: ")) == (
        "Warning",
        True,
    )
    assert blue in [each["metadata"]["name"] for each in sim.kube.all(RAY_CLUSTER)]


async def a_running_blue_green(**fields: Any) -> Simulator:
    sim = a_pair()
    sim.apply(**fields)
    await sim.until(sim.is_complete)
    return sim
