"""Clients of `<service>-serve-svc` keep the whole capacity while an upgrade moves the route (ADR 14)."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_SERVICE, SERVICE
from scenario.upgrade.harness import BLUE, GREEN, Pair
from support.builders.ray_service import NAME, NAMESPACE, a_serve_config, a_strategy
from support.fakes.kube import Request

STEPS = a_strategy(surge=20, step=20, interval=2)


def selector(harness: Pair) -> dict[str, str]:
    return harness.kube.objects[(SERVICE.kind, NAMESPACE, f"{NAME}-serve-svc")]["spec"]["selector"]


def reached(harness: Pair) -> set[str]:
    """Return the clusters of which the Service selects a ready pod."""
    wanted = selector(harness).items()
    ready = [
        each for each in harness.kube.all(POD) if each.get("status", {}).get("phase") == "Running"
    ]
    return {
        each["metadata"]["labels"][labels.CLUSTER]
        for each in ready
        if wanted <= each["metadata"]["labels"].items()
    }


def capacity(harness: Pair) -> float:
    """Return the capacity, in percent, that the Service's clients reach."""
    found = (
        harness.serve.head(f"{each}-head-svc").details()["target_capacity"]
        for each in reached(harness)
    )
    return sum(100 if each is None else each for each in found)


async def a_former_blue_green(**fields: Any) -> Pair:
    """Return a service that began with NewCluster and moves its traffic in steps from now on."""
    harness = Pair()
    harness.apply(upgradeStrategy={"type": "NewCluster"})
    await harness.until(harness.is_complete)
    harness.apply(upgradeStrategy=STEPS, **fields)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    return harness


async def watched(harness: Pair, holds: Any, *, seconds: float = 200) -> float:
    """Let time pass until something holds; return the least capacity that clients had."""
    least = capacity(harness)
    for _ in range(round(seconds * 4)):
        if holds():
            return least
        await harness.run(0.25)
        least = min(least, capacity(harness))
    raise AssertionError(harness.status)


async def test_an_upgrade_in_steps_takes_nothing_from_its_clients() -> None:
    harness = await a_former_blue_green()
    blue = harness.active
    harness.apply(
        config=GREEN,
        serve=a_serve_config(message="v2"),
        upgradeStrategy=STEPS,
        rayClusterDeletionDelaySeconds=5,
    )
    assert await watched(harness, lambda: blue not in harness.clusters) >= 100
    assert selector(harness) == {labels.CLUSTER: harness.active, labels.SERVE: "true"}
    await harness.run(2)
    assert not [
        each for each in harness.kube.all(POD) if labels.SERVES in each["metadata"]["labels"]
    ]


async def test_a_rollback_takes_nothing_from_them() -> None:
    harness = await a_former_blue_green()
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=STEPS)
    assert await watched(harness, lambda: harness.view.weights[1] == 60) >= 100
    assert reached(harness) == {blue, harness.pending}
    harness.apply(config=BLUE, upgradeStrategy=STEPS)
    assert await watched(harness, harness.is_complete) >= 100
    assert selector(harness) == {labels.CLUSTER: blue, labels.SERVE: "true"}


@pytest.mark.parametrize("weight", [20, 60, 100])
async def test_nor_does_it_while_service_reconciler_is_away(weight: int) -> None:
    harness = await a_former_blue_green()
    harness.apply(config=GREEN, upgradeStrategy=STEPS)
    await harness.until(lambda: harness.view.weights[1] == weight, seconds=100)
    harness.is_service_down = True
    least = capacity(harness)
    for _ in range(100):
        await harness.run(0.25)
        least = min(least, capacity(harness))
    assert least >= 80, "at most one step is missing"


async def test_a_pending_cluster_without_requests_is_not_selected() -> None:
    harness = await a_former_blue_green()
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy={**STEPS}, annotations={labels.PAUSE: "true"})
    await harness.run(20)
    assert harness.pending
    assert reached(harness) == {blue}


async def test_where_pods_cannot_be_labelled_the_active_cluster_stays_selected() -> None:
    harness = await a_former_blue_green()
    blue = harness.active

    def refuse(request: Request) -> errors.RaybusError | None:
        held: Json = (
            request.body.get("metadata", {}).get("labels", {}) if request.verb == "patch" else {}
        )
        return errors.Rejected("denied") if labels.SERVES in held else None

    harness.kube.faults.append(refuse)
    harness.apply(config=GREEN, upgradeStrategy=STEPS)
    await harness.until(lambda: harness.view.weights[1] == 20, seconds=60)
    assert reached(harness) == {blue}
    assert "FailedToLabelPod" in harness.reasons()
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=200)


async def test_a_wiped_status_does_not_lose_the_cluster_that_serves() -> None:
    harness = await a_former_blue_green()
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=STEPS)
    await harness.until(lambda: harness.view.weights[1] == 40, seconds=60)
    green = harness.pending
    harness.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, {})
    harness.restart()
    await harness.reconcile()
    assert (harness.active, harness.pending) == (blue, green)
