"""Writes that only accompany an upgrade may be refused for ever: they cost an Event, never a cluster, a promotion or a step."""

from collections.abc import Callable
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from scenario.upgrade.world import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import a_group, a_strategy
from support.fakes.kube import Request

FAST = a_strategy(surge=100, step=100, interval=1)
BLUE_GREEN = {"type": "NewCluster"}
REFUSED = errors.Rejected('admission webhook "policy.example.com" denied the request')
FAILING = errors.Unavailable('failed calling webhook "policy.example.com": timeout')


def refuse(world: Pair, matches: Callable[[Request], bool], problem: errors.RaybusError = REFUSED) -> list[Request]:
    """Refuse some writes from now on; return those that were tried."""
    tried: list[Request] = []

    def fault(request: Request) -> errors.RaybusError | None:
        if not matches(request):
            return None
        tried.append(request)
        return problem

    world.kube.faults.append(fault)
    return tried


def annotates(kind: str, name: str) -> Callable[[Request], bool]:
    def matches(request: Request) -> bool:
        held: Json = request.body.get("metadata", {}).get("annotations", {}) if request.verb == "patch" else {}
        return request.kind == kind and request.verb == "patch" and name in held

    return matches


def told(world: Pair, reason: str) -> list[tuple[str, str]]:
    return [(kind, note) for kind, found, note in world.kube.events() if found == reason]


@pytest.mark.parametrize("problem", [REFUSED, FAILING], ids=["denied", "failing"])
async def test_a_receipt_that_is_refused_keeps_no_cluster(problem: errors.RaybusError) -> None:
    world = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = world.active
    tried = refuse(world, annotates("RayService", labels.UPGRADE_RECEIPT), problem)
    world.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await world.until(lambda: blue not in world.clusters, seconds=60)
    await world.run(60)
    assert len(tried) <= 2
    [(kind, note)] = told(world, "ReceiptNotWritten")
    assert kind == "Warning"
    assert f"The receipt of the upgrade from {blue} to {world.active} is not written: {problem}" in note
    assert told(world, "UpgradeReceipt") == []


async def test_pods_that_cannot_be_marked_keep_no_cluster() -> None:
    wanted = {"annotations": {labels.GRACEFUL_DRAIN: "true"}, "upgradeStrategy": BLUE_GREEN}
    world = await a_running_blue_green(**wanted)
    blue = world.active
    tried = refuse(world, annotates("Pod", labels.DRAINING))
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=5, **wanted)
    await world.until(lambda: blue not in world.clusters, seconds=120)
    assert tried
    assert told(world, "DrainNotTold")[0][0] == "Warning"


async def test_a_head_that_cannot_be_labelled_keeps_no_old_cluster() -> None:
    world = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    world.serve.head(f"{world.active}-head-svc").proxy_is_healthy = False
    tried = refuse(world, lambda request: (request.verb, request.kind) == ("patch", "Pod"))
    await world.until(lambda: blue not in world.clusters, seconds=60)
    assert tried
    assert len(tried) < 60


async def test_a_quota_that_the_old_cluster_fills_is_not_waited_for_by_its_deletion() -> None:
    world = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = world.active
    full = errors.Forbidden("exceeded quota: rayclusters")
    refuse(world, lambda each: (each.verb, each.kind) == ("create", "RayCluster") and len(world.clusters) >= 2, full)
    world.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    green = world.active
    world.apply(config=RED, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await world.until(lambda: world.is_settled() and world.active not in {blue, green}, seconds=120)
    assert blue not in world.clusters


@pytest.mark.parametrize("problem", [REFUSED, FAILING], ids=["denied", "failing"])
async def test_a_spec_that_cannot_be_recorded_prevents_no_cluster(problem: errors.RaybusError) -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    refuse(world, lambda each: each.kind == "ControllerRevision" and "-goal-" in (each.name or ""), problem)
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    assert told(world, "SpecNotRecorded")


async def test_a_cluster_that_cannot_grow_gets_its_config_and_its_status_all_the_same() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    refuse(world, lambda each: (each.verb, each.kind) == ("patch", "RayCluster"))
    before = world.status["observedGeneration"]
    world.apply(config={**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], a_group("more")]}, upgradeStrategy=FAST)
    await world.run(5)
    assert world.status["observedGeneration"] > before
    assert told(world, "FailedToUpdateRayCluster")


async def test_a_deadline_that_cannot_be_written_is_told() -> None:
    world = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    blue = world.active
    refuse(world, annotates("RayCluster", "raybus.io/delete-after"))
    world.apply(config=GREEN, upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=5)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    await world.run(5)
    [(kind, note)] = told(world, "FailedToUpdateRayCluster")
    assert (kind, note.startswith(f"Failed to update the old RayCluster default/{blue}: ")) == ("Warning", True)
    assert blue in [each["metadata"]["name"] for each in world.kube.all(RAY_CLUSTER)]


async def a_running_blue_green(**fields: Any) -> Pair:
    world = Pair()
    world.apply(**fields)
    await world.until(world.is_settled)
    return world
