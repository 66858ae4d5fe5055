"""service-reconciler and traffic-manager with different feature gates, as during a rollout of a changed gate: one service always writes.

service-reconciler alone heeds the gate of upgrades in steps. What it decides stands in the status as `targetCapacity`, and both follow that.
"""

from typing import Any

import pytest

from common.feature_gates import BETA, Gate, Gates
from common.kube.resources import GATEWAY, HTTP_ROUTE
from scenario.upgrade.harness import GREEN, Pair
from service_reconciler.settings import Config
from support.builders.ray_service import a_serve_config, a_strategy

ON, OFF = BETA, BETA - {Gate.INCREMENTAL_UPGRADE}
FAST = a_strategy(surge=100, step=50, interval=1)
FLIPS = pytest.mark.parametrize(
    ("first", "then"),
    [(ON, OFF), (OFF, ON), (ON, ON), (OFF, OFF)],
    ids=["on-off", "off-on", "on", "off"],
)


def switch(harness: Pair, gates: Gates) -> None:
    """Begin a new service-reconciler with other gates; traffic-manager goes on."""
    harness.config = Config(gates=gates)
    harness.restart_service()


async def a_pair(gates: Gates) -> Pair:
    harness = Pair(gates=gates)
    harness.apply(upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.puts(harness.active)))
    await harness.run(5)
    return harness


async def takes_a_changed_config(harness: Pair, message: str, **fields: Any) -> None:
    """A changed Serve config is sent once, by one service, and the cluster has all of its capacity."""
    sent = len(harness.puts(harness.active))
    harness.apply(serve=a_serve_config(message=message), upgradeStrategy=FAST, **fields)
    await harness.until(lambda: len(harness.puts(harness.active)) > sent, seconds=5)
    await harness.run(20)
    held = harness.puts(harness.active)
    assert held[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == message
    assert len(held) == sent + 1
    assert held[-1].get("target_capacity", 100) == 100


def moves_in_steps(harness: Pair) -> bool:
    return "targetCapacity" in harness.status["activeServiceStatus"]


@FLIPS
async def test_with_one_cluster_a_changed_config_is_sent_whatever_the_gates(
    first: Gates, then: Gates
) -> None:
    harness = await a_pair(first)
    assert moves_in_steps(harness) == (first is ON)
    assert bool(harness.kube.all(HTTP_ROUTE)) == bool(harness.kube.all(GATEWAY)) == (first is ON)
    switch(harness, then)
    await takes_a_changed_config(harness, "v2")
    assert moves_in_steps(harness) == (then is ON)


@FLIPS
async def test_an_upgrade_ends_as_it_began_and_the_next_config_is_sent(
    first: Gates, then: Gates
) -> None:
    harness = await a_pair(first)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    if first is ON:
        await harness.until(lambda: (harness.view.weights[1] or 0) == 50, seconds=30)
    else:
        await harness.until(
            lambda: bool(harness.pending) and harness.pending in harness.clusters, seconds=30
        )
    green = harness.pending
    switch(harness, then)
    await harness.run(0.25)
    assert ("targetCapacity" in harness.status["pendingServiceStatus"]) == (first is ON)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=100)
    await harness.run(10)
    assert harness.puts(blue)[-1].get("target_capacity", 100) == (0 if first is ON else 100)
    await takes_a_changed_config(harness, "v2", config=GREEN)


@FLIPS
async def test_an_upgrade_after_the_change_follows_the_gate_of_service_reconciler(
    first: Gates, then: Gates
) -> None:
    harness = await a_pair(first)
    switch(harness, then)
    await harness.run(5)
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending), seconds=30)
    green = harness.pending
    assert ("targetCapacity" in harness.status["pendingServiceStatus"]) == (then is ON)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=100)
    await takes_a_changed_config(harness, "v2", config=GREEN)
