"""service-reconciler and traffic-manager with different feature gates, as during a rollout of a changed gate: one service always writes.

service-reconciler alone heeds the gate of upgrades in steps. What it decides stands in the status as `targetCapacity`, and both follow that.
"""

from typing import Any

import pytest

from common.feature_gates import BETA, FeatureGate, Gates
from common.kube.resources import GATEWAY, HTTP_ROUTE
from service_reconciler.settings import Config
from support.builders.ray_service import a_serve_config, a_strategy
from support.simulator.simulator import GREEN, Simulator, a_pair

ON, OFF = BETA, BETA - {FeatureGate.INCREMENTAL_UPGRADE}
FAST = a_strategy(surge=100, step=50, interval=1)
FLIPS = pytest.mark.parametrize(
    ("first", "then"),
    [(ON, OFF), (OFF, ON), (ON, ON), (OFF, OFF)],
    ids=["on-off", "off-on", "on", "off"],
)


def switch(sim: Simulator, gates: Gates) -> None:
    """Begin a new service-reconciler with other gates; traffic-manager goes on."""
    sim.settings = Config(gates=gates)
    sim.restart("service")


async def serving_pair(gates: Gates) -> Simulator:
    sim = a_pair(gates=gates)
    sim.apply(upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.puts(sim.active)))
    await sim.run(5)
    return sim


async def takes_a_changed_config(sim: Simulator, message: str, **fields: Any) -> None:
    """A changed Serve config is sent once, by one service, and the cluster has all of its capacity."""
    sent = len(sim.puts(sim.active))
    sim.apply(serve=a_serve_config(message=message), upgradeStrategy=FAST, **fields)
    await sim.until(lambda: len(sim.puts(sim.active)) > sent, seconds=5)
    await sim.run(20)
    held = sim.puts(sim.active)
    assert held[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == message
    assert len(held) == sent + 1
    assert held[-1].get("target_capacity", 100) == 100


def moves_in_steps(sim: Simulator) -> bool:
    return "targetCapacity" in sim.status["activeServiceStatus"]


@FLIPS
async def test_with_one_cluster_a_changed_config_is_sent_whatever_the_gates(
    first: Gates, then: Gates
) -> None:
    sim = await serving_pair(first)
    assert moves_in_steps(sim) == (first is ON)
    assert bool(sim.kube.all(HTTP_ROUTE)) == bool(sim.kube.all(GATEWAY)) == (first is ON)
    switch(sim, then)
    await takes_a_changed_config(sim, "v2")
    assert moves_in_steps(sim) == (then is ON)


@FLIPS
async def test_an_upgrade_ends_as_it_began_and_the_next_config_is_sent(
    first: Gates, then: Gates
) -> None:
    sim = await serving_pair(first)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    if first is ON:
        await sim.until(lambda: (sim.view.weights[1] or 0) == 50, seconds=30)
    else:
        await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters, seconds=30)
    green = sim.pending
    switch(sim, then)
    await sim.run(0.25)
    assert ("targetCapacity" in sim.status["pendingServiceStatus"]) == (first is ON)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)
    await sim.run(10)
    assert sim.puts(blue)[-1].get("target_capacity", 100) == (0 if first is ON else 100)
    await takes_a_changed_config(sim, "v2", config=GREEN)


@FLIPS
async def test_an_upgrade_after_the_change_follows_the_gate_of_service_reconciler(
    first: Gates, then: Gates
) -> None:
    sim = await serving_pair(first)
    switch(sim, then)
    await sim.run(5)
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending), seconds=30)
    green = sim.pending
    assert ("targetCapacity" in sim.status["pendingServiceStatus"]) == (then is ON)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)
    await takes_a_changed_config(sim, "v2", config=GREEN)
