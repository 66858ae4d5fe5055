"""Capacity parity: a target capacity of 100 percent is one replica where the autoscaler has seen no load yet (ADR 41)."""

import math

import pytest

from common import labels
from common.kube.resources import POD
from support.builders.ray_service import NAMESPACE, a_strategy
from support.fakes.serve import FakeHead
from support.simulator.simulator import GREEN, Simulator, a_running_pair

AT_ONCE = a_strategy(surge=100, step=100, interval=1)
BLUE_REPLICAS = 50


async def an_autoscaled_upgrade(**annotations: str) -> tuple[Simulator, FakeHead]:
    """Return an upgrade from fifty replicas to one, and the new head."""
    sim = await a_running_pair(annotations=annotations, upgradeStrategy=AT_ONCE)
    sim.serve.head(f"{sim.active}-head-svc").autoscaled = BLUE_REPLICAS
    await sim.run(10)
    sim.apply(config=GREEN, annotations=annotations, upgradeStrategy=AT_ONCE)
    await sim.until(lambda: bool(sim.pending), seconds=10)
    head = sim.serve.head(f"{sim.pending}-head-svc")
    head.autoscaled = 1
    return sim, head


async def test_traffic_follows_the_replicas_and_they_follow_the_traffic() -> None:
    sim, head = await an_autoscaled_upgrade()
    green = sim.pending
    await sim.run(30)
    assert sim.weights[green] == 4, "one replica of fifty, and one that may follow"
    for _ in range(200):
        share = sim.weights.get(green, 0)
        replicas = head.autoscaled or 1
        assert share * BLUE_REPLICAS / 100 <= max(replicas + 1, replicas * 1.25), (
            "never far more than what runs"
        )
        head.autoscaled = max(replicas, math.ceil(BLUE_REPLICAS * share / 100))
        await sim.run(2)
        if sim.is_complete() and sim.active == green:
            break
    assert (sim.active, sim.weights) == (green, {green: 100})


@pytest.mark.parametrize("value", ["false"])
async def test_a_user_may_do_without_it(value: str) -> None:
    sim, _ = await an_autoscaled_upgrade(**{labels.CAPACITY_PARITY: value})
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)


async def test_a_silent_dashboard_sends_all_of_the_traffic_to_no_single_replica() -> None:
    sim, _ = await an_autoscaled_upgrade()
    blue, green = sim.active, sim.pending
    await sim.until(lambda: sim.weights.get(green, 0) == 4, seconds=30)
    sim.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await sim.run(60)
    assert sim.weights == {blue: 96, green: 4}, (
        "fifty replicas may still serve, and one cannot do their work"
    )
    for role in ("head", "worker"):
        sim.kube.set_status(POD, NAMESPACE, f"{blue}-{role}", {"phase": "Failed"})
    await sim.run(5)
    assert sim.weights.get(green) == 100, "none of its pods takes requests"


WAITS = "runs too few replicas of app/Model to get more of the traffic"


async def test_a_step_that_waits_for_replicas_reports_it_once_and_only_while_it_waits() -> None:
    sim, head = await an_autoscaled_upgrade()
    green = sim.pending
    await sim.run(40)
    assert f"RayCluster {green} {WAITS}" in sim.message("UpgradeInProgress")
    assert 'raybus.io/capacity-parity: "false"' in sim.message("UpgradeInProgress")
    for replicas in (2, 1, 2, 1):
        head.autoscaled = replicas
        await sim.run(20)
    assert sim.reasons().count("InsufficientReplicas") == 1
    head.autoscaled = BLUE_REPLICAS
    await sim.until(lambda: WAITS not in sim.message("UpgradeInProgress"), seconds=30)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)


async def test_an_upgrade_that_stalls_for_want_of_replicas_names_them() -> None:
    sim, _ = await an_autoscaled_upgrade(**{labels.PROGRESS_DEADLINE: "60s"})
    await sim.until(
        lambda: sim.condition("UpgradeStalled") == ("True", "InsufficientReplicas"), seconds=120
    )
    assert WAITS in sim.message("UpgradeStalled")


async def test_a_step_that_may_continue_reports_nothing_of_replicas() -> None:
    sim, _ = await an_autoscaled_upgrade(**{labels.CAPACITY_PARITY: "false"})
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)
    assert "InsufficientReplicas" not in sim.reasons()
