"""service-reconciler and traffic-manager with different feature gates, as during a rollout of a changed gate: one service always writes.

service-reconciler alone heeds the gate of upgrades in steps. What it decides stands in the status as `targetCapacity`, and both follow that.
"""

from typing import Any

import pytest

from common.feature_gates import BETA, Gate, Gates
from common.kube.resources import GATEWAY, HTTP_ROUTE
from scenario.upgrade.world import GREEN, Pair
from service_reconciler.config import Config
from support.builders.ray_service import a_serve_config, a_strategy

ON, OFF = BETA, BETA - {Gate.INCREMENTAL_UPGRADE}
FAST = a_strategy(surge=100, step=50, interval=1)
FLIPS = pytest.mark.parametrize(
    ("first", "then"), [(ON, OFF), (OFF, ON), (ON, ON), (OFF, OFF)], ids=["on-off", "off-on", "on", "off"]
)


def switch(world: Pair, gates: Gates) -> None:
    """Begin a new service-reconciler with other gates; traffic-manager goes on."""
    world.config = Config(gates=gates)
    world.restart_service()


async def a_pair(gates: Gates) -> Pair:
    world = Pair(gates=gates)
    world.apply(upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and bool(world.puts(world.active)))
    await world.run(5)
    return world


async def takes_a_changed_config(world: Pair, message: str, **fields: Any) -> None:
    """A changed Serve config is sent once, by one service, and the cluster has all of its capacity."""
    sent = len(world.puts(world.active))
    world.apply(serve=a_serve_config(message=message), upgradeStrategy=FAST, **fields)
    await world.until(lambda: len(world.puts(world.active)) > sent, seconds=5)
    await world.run(20)
    held = world.puts(world.active)
    assert held[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == message
    assert len(held) == sent + 1
    assert held[-1].get("target_capacity", 100) == 100


def moves_in_steps(world: Pair) -> bool:
    return "targetCapacity" in world.status["activeServiceStatus"]


@FLIPS
async def test_with_one_cluster_a_changed_config_is_sent_whatever_the_gates(first: Gates, then: Gates) -> None:
    world = await a_pair(first)
    assert moves_in_steps(world) == (first is ON)
    assert bool(world.kube.all(HTTP_ROUTE)) == bool(world.kube.all(GATEWAY)) == (first is ON)
    switch(world, then)
    await takes_a_changed_config(world, "v2")
    assert moves_in_steps(world) == (then is ON)


@FLIPS
async def test_an_upgrade_ends_as_it_began_and_the_next_config_is_sent(first: Gates, then: Gates) -> None:
    world = await a_pair(first)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST)
    if first is ON:
        await world.until(lambda: (world.view.weights[1] or 0) == 50, seconds=30)
    else:
        await world.until(lambda: bool(world.pending) and world.pending in world.clusters, seconds=30)
    green = world.pending
    switch(world, then)
    await world.run(0.25)
    assert ("targetCapacity" in world.status["pendingServiceStatus"]) == (first is ON)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=100)
    await world.run(10)
    assert world.puts(blue)[-1].get("target_capacity", 100) == (0 if first is ON else 100)
    await takes_a_changed_config(world, "v2", config=GREEN)


@FLIPS
async def test_an_upgrade_after_the_change_goes_as_the_gate_of_service_reconciler_says(
    first: Gates, then: Gates
) -> None:
    world = await a_pair(first)
    switch(world, then)
    await world.run(5)
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.until(lambda: bool(world.pending), seconds=30)
    green = world.pending
    assert ("targetCapacity" in world.status["pendingServiceStatus"]) == (then is ON)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=100)
    await takes_a_changed_config(world, "v2", config=GREEN)
