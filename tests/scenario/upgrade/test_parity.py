"""Capacity parity: a target capacity of 100 percent is one replica where the autoscaler has seen no load yet (ADR 11)."""

import math

import pytest

from common import labels
from common.kube.resources import POD
from scenario.upgrade.world import GREEN, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_strategy
from support.fakes.serve import FakeHead

AT_ONCE = a_strategy(surge=100, step=100, interval=1)
BLUE_REPLICAS = 50


async def an_autoscaled_upgrade(**annotations: str) -> tuple[Pair, FakeHead]:
    """Return an upgrade from fifty replicas to one, and the new head."""
    world = await a_running_pair(annotations=annotations, upgradeStrategy=AT_ONCE)
    world.serve.head(f"{world.active}-head-svc").autoscaled = BLUE_REPLICAS
    await world.run(10)
    world.apply(config=GREEN, annotations=annotations, upgradeStrategy=AT_ONCE)
    await world.until(lambda: bool(world.pending), seconds=10)
    head = world.serve.head(f"{world.pending}-head-svc")
    head.autoscaled = 1
    return world, head


async def test_traffic_follows_the_replicas_and_they_follow_the_traffic() -> None:
    world, head = await an_autoscaled_upgrade()
    green = world.pending
    await world.run(30)
    assert world.weights[green] == 4, "one replica of fifty, and one that may follow"
    for _ in range(200):
        share = world.weights.get(green, 0)
        replicas = head.autoscaled or 1
        assert share * BLUE_REPLICAS / 100 <= max(replicas + 1, replicas * 1.25), "never far more than what runs"
        head.autoscaled = max(replicas, math.ceil(BLUE_REPLICAS * share / 100))
        await world.run(2)
        if world.is_settled() and world.active == green:
            break
    assert (world.active, world.weights) == (green, {green: 100})


@pytest.mark.parametrize("value", ["false"])
async def test_a_user_may_do_without_it(value: str) -> None:
    world, _ = await an_autoscaled_upgrade(**{labels.CAPACITY_PARITY: value})
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)


async def test_a_silent_dashboard_sends_all_of_the_traffic_to_no_single_replica() -> None:
    world, _ = await an_autoscaled_upgrade()
    blue, green = world.active, world.pending
    await world.until(lambda: world.weights.get(green, 0) == 4, seconds=30)
    world.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await world.run(60)
    assert world.weights == {blue: 96, green: 4}, "fifty replicas may still serve, and one cannot do their work"
    for role in ("head", "worker"):
        world.kube.set_status(POD, NAMESPACE, f"{blue}-{role}", {"phase": "Failed"})
    await world.run(5)
    assert world.weights.get(green) == 100, "none of its pods takes requests"


async def test_traffic_leaves_a_silent_dashboard_as_replicas_follow() -> None:
    world, head = await an_autoscaled_upgrade()
    blue, green = world.active, world.pending
    await world.until(lambda: world.weights.get(green, 0) == 4, seconds=30)
    world.serve.head(f"{blue}-head-svc").behaviour = "silent"
    head.autoscaled = 20
    await world.run(10)
    assert world.weights == {blue: 50, green: 50}
    head.autoscaled = 50
    await world.run(10)
    assert world.weights.get(green) == 100


WAITS = "runs too few replicas of app/Model to get more of the traffic"


async def test_a_step_that_waits_for_replicas_says_so_once_and_no_longer_than_it_waits() -> None:
    world, head = await an_autoscaled_upgrade()
    green = world.pending
    await world.run(40)
    assert f"RayCluster {green} {WAITS}" in world.message("UpgradeInProgress")
    assert 'raybus.io/capacity-parity: "false"' in world.message("UpgradeInProgress")
    for replicas in (2, 1, 2, 1):
        head.autoscaled = replicas
        await world.run(20)
    assert world.reasons().count("InsufficientReplicas") == 1
    head.autoscaled = BLUE_REPLICAS
    await world.until(lambda: WAITS not in world.message("UpgradeInProgress"), seconds=30)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)


async def test_an_upgrade_that_stalls_for_want_of_replicas_names_them() -> None:
    world, _ = await an_autoscaled_upgrade(**{labels.PROGRESS_DEADLINE: "60s"})
    await world.until(lambda: world.condition("UpgradeStalled") == ("True", "InsufficientReplicas"), seconds=120)
    assert WAITS in world.message("UpgradeStalled")


async def test_a_step_that_may_go_on_says_nothing_of_replicas() -> None:
    world, _ = await an_autoscaled_upgrade(**{labels.CAPACITY_PARITY: "false"})
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)
    assert "InsufficientReplicas" not in world.reasons()
