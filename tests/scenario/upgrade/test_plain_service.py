"""Clients of `<service>-serve-svc` keep the whole capacity while an upgrade moves the route (ADR 14)."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_SERVICE, SERVICE
from support.builders.ray_service import NAME, NAMESPACE, a_serve_config, a_strategy
from support.fakes.kube import Request
from support.simulator.simulator import BLUE, GREEN, Simulator, a_pair

STEPS = a_strategy(surge=20, step=20, interval=2)


def selector(sim: Simulator) -> dict[str, str]:
    return sim.kube.objects[(SERVICE.kind, NAMESPACE, f"{NAME}-serve-svc")]["spec"]["selector"]


def reached(sim: Simulator) -> set[str]:
    """Return the clusters of which the Service selects a ready pod."""
    wanted = selector(sim).items()
    ready = [each for each in sim.kube.all(POD) if each.get("status", {}).get("phase") == "Running"]
    return {
        each["metadata"]["labels"][labels.CLUSTER]
        for each in ready
        if wanted <= each["metadata"]["labels"].items()
    }


def capacity(sim: Simulator) -> float:
    """Return the capacity, in percent, that the Service's clients reach."""
    found = (
        sim.serve.head(f"{each}-head-svc").details()["target_capacity"] for each in reached(sim)
    )
    return sum(100 if each is None else each for each in found)


async def a_former_blue_green(**fields: Any) -> Simulator:
    """Return a service that began with NewCluster and moves its traffic in steps from now on."""
    sim = a_pair()
    sim.apply(upgradeStrategy={"type": "NewCluster"})
    await sim.until(sim.is_complete)
    sim.apply(upgradeStrategy=STEPS, **fields)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    return sim


async def watched(sim: Simulator, holds: Any, *, seconds: float = 200) -> float:
    """Let time pass until something holds; return the least capacity that clients had."""
    least = capacity(sim)
    for _ in range(round(seconds * 4)):
        if holds():
            return least
        await sim.run(0.25)
        least = min(least, capacity(sim))
    raise AssertionError(sim.status)


async def test_an_upgrade_in_steps_takes_nothing_from_its_clients() -> None:
    sim = await a_former_blue_green()
    blue = sim.active
    sim.apply(
        config=GREEN,
        serve=a_serve_config(message="v2"),
        upgradeStrategy=STEPS,
        rayClusterDeletionDelaySeconds=5,
    )
    assert await watched(sim, lambda: blue not in sim.clusters) >= 100
    assert selector(sim) == {labels.CLUSTER: sim.active, labels.SERVE: "true"}
    await sim.run(2)
    assert not [each for each in sim.kube.all(POD) if labels.SERVES in each["metadata"]["labels"]]


async def test_a_rollback_takes_nothing_from_them() -> None:
    sim = await a_former_blue_green()
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=STEPS)
    assert await watched(sim, lambda: sim.view.weights[1] == 60) >= 100
    assert reached(sim) == {blue, sim.pending}
    sim.apply(config=BLUE, upgradeStrategy=STEPS)
    assert await watched(sim, sim.is_complete) >= 100
    assert selector(sim) == {labels.CLUSTER: blue, labels.SERVE: "true"}


@pytest.mark.parametrize("weight", [20, 60, 100])
async def test_nor_does_it_while_service_reconciler_is_away(weight: int) -> None:
    sim = await a_former_blue_green()
    sim.apply(config=GREEN, upgradeStrategy=STEPS)
    await sim.until(lambda: sim.view.weights[1] == weight, seconds=100)
    sim.services["service"].is_down = True
    least = capacity(sim)
    for _ in range(100):
        await sim.run(0.25)
        least = min(least, capacity(sim))
    assert least >= 80, "at most one step is missing"


async def test_a_pending_cluster_without_requests_is_not_selected() -> None:
    sim = await a_former_blue_green()
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy={**STEPS}, annotations={labels.PAUSE: "true"})
    await sim.run(20)
    assert sim.pending
    assert reached(sim) == {blue}


async def test_where_pods_cannot_be_labelled_the_active_cluster_stays_selected() -> None:
    sim = await a_former_blue_green()
    blue = sim.active

    def refuse(request: Request) -> errors.RaybusError | None:
        held: Json = (
            request.body.get("metadata", {}).get("labels", {}) if request.verb == "patch" else {}
        )
        return errors.Rejected("denied") if labels.SERVES in held else None

    sim.kube.faults.append(refuse)
    sim.apply(config=GREEN, upgradeStrategy=STEPS)
    await sim.until(lambda: sim.view.weights[1] == 20, seconds=60)
    assert reached(sim) == {blue}
    assert "FailedToLabelPod" in sim.reasons()
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=200)


async def test_a_wiped_status_does_not_lose_the_cluster_that_serves() -> None:
    sim = await a_former_blue_green()
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=STEPS)
    await sim.until(lambda: sim.view.weights[1] == 40, seconds=60)
    green = sim.pending
    sim.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, {})
    sim.restart()
    await sim.reconcile()
    assert (sim.active, sim.pending) == (blue, green)
