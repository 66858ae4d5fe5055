"""Clients of `<service>-serve-svc` keep the whole capacity while an upgrade moves the route (ADR 14)."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_SERVICE, SERVICE
from scenario.upgrade.world import BLUE, GREEN, Pair
from support.builders.ray_service import NAME, NAMESPACE, a_serve_config, a_strategy
from support.fakes.kube import Request

STEPS = a_strategy(surge=20, step=20, interval=2)


def selector(world: Pair) -> dict[str, str]:
    return world.kube.objects[(SERVICE.kind, NAMESPACE, f"{NAME}-serve-svc")]["spec"]["selector"]


def reached(world: Pair) -> set[str]:
    """Return the clusters of which the Service selects a ready pod."""
    wanted = selector(world).items()
    ready = [each for each in world.kube.all(POD) if each.get("status", {}).get("phase") == "Running"]
    return {
        each["metadata"]["labels"][labels.CLUSTER] for each in ready if wanted <= each["metadata"]["labels"].items()
    }


def capacity(world: Pair) -> float:
    """Return the capacity, in percent, that the Service's clients reach."""
    found = (world.serve.head(f"{each}-head-svc").details()["target_capacity"] for each in reached(world))
    return sum(100 if each is None else each for each in found)


async def a_former_blue_green(**fields: Any) -> Pair:
    """Return a service that was begun with NewCluster and whose traffic moves in steps from now on."""
    world = Pair()
    world.apply(upgradeStrategy={"type": "NewCluster"})
    await world.until(world.is_settled)
    world.apply(upgradeStrategy=STEPS, **fields)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    return world


async def watched(world: Pair, holds: Any, *, seconds: float = 200) -> float:
    """Let time pass until something holds; return the least capacity that clients had."""
    least = capacity(world)
    for _ in range(round(seconds * 4)):
        if holds():
            return least
        await world.run(0.25)
        least = min(least, capacity(world))
    raise AssertionError(world.status)


async def test_an_upgrade_in_steps_takes_nothing_from_its_clients() -> None:
    world = await a_former_blue_green()
    blue = world.active
    world.apply(
        config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy=STEPS, rayClusterDeletionDelaySeconds=5
    )
    assert await watched(world, lambda: blue not in world.clusters) >= 100
    assert selector(world) == {labels.CLUSTER: world.active, labels.SERVE: "true"}
    await world.run(2)
    assert not [each for each in world.kube.all(POD) if labels.SERVES in each["metadata"]["labels"]]


async def test_a_rollback_takes_nothing_from_them() -> None:
    world = await a_former_blue_green()
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=STEPS)
    assert await watched(world, lambda: world.view.weights[1] == 60) >= 100
    assert reached(world) == {blue, world.pending}
    world.apply(config=BLUE, upgradeStrategy=STEPS)
    assert await watched(world, world.is_settled) >= 100
    assert selector(world) == {labels.CLUSTER: blue, labels.SERVE: "true"}


@pytest.mark.parametrize("weight", [20, 60, 100])
async def test_nor_does_it_while_service_reconciler_is_away(weight: int) -> None:
    world = await a_former_blue_green()
    world.apply(config=GREEN, upgradeStrategy=STEPS)
    await world.until(lambda: world.view.weights[1] == weight, seconds=100)
    world.is_service_down = True
    least = capacity(world)
    for _ in range(100):
        await world.run(0.25)
        least = min(least, capacity(world))
    assert least >= 80, "at most one step is missing"


async def test_a_pending_cluster_without_requests_is_not_selected() -> None:
    world = await a_former_blue_green()
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy={**STEPS}, annotations={labels.PAUSE: "true"})
    await world.run(20)
    assert world.pending
    assert reached(world) == {blue}


async def test_where_pods_cannot_be_labelled_the_active_cluster_stays_selected() -> None:
    world = await a_former_blue_green()
    blue = world.active

    def refuse(request: Request) -> errors.RaybusError | None:
        held: Json = request.body.get("metadata", {}).get("labels", {}) if request.verb == "patch" else {}
        return errors.Rejected("denied") if labels.SERVES in held else None

    world.kube.faults.append(refuse)
    world.apply(config=GREEN, upgradeStrategy=STEPS)
    await world.until(lambda: world.view.weights[1] == 20, seconds=60)
    assert reached(world) == {blue}
    assert "FailedToLabelPod" in world.reasons()
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=200)


async def test_a_wiped_status_does_not_lose_the_cluster_that_serves() -> None:
    world = await a_former_blue_green()
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=STEPS)
    await world.until(lambda: world.view.weights[1] == 40, seconds=60)
    green = world.pending
    world.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, {})
    world.restart()
    await world.look()
    assert (world.active, world.pending) == (blue, green)
