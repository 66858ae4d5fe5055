"""Capacity parity: a target capacity of 100 percent is one replica where the autoscaler has seen no load yet (ADR 41)."""

import math

import pytest

from common import labels
from common.kube.resources import POD
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_strategy
from support.fakes.serve import FakeHead

AT_ONCE = a_strategy(surge=100, step=100, interval=1)
BLUE_REPLICAS = 50


async def an_autoscaled_upgrade(**annotations: str) -> tuple[Pair, FakeHead]:
    """Return an upgrade from fifty replicas to one, and the new head."""
    harness = await a_running_pair(annotations=annotations, upgradeStrategy=AT_ONCE)
    harness.serve.head(f"{harness.active}-head-svc").autoscaled = BLUE_REPLICAS
    await harness.run(10)
    harness.apply(config=GREEN, annotations=annotations, upgradeStrategy=AT_ONCE)
    await harness.until(lambda: bool(harness.pending), seconds=10)
    head = harness.serve.head(f"{harness.pending}-head-svc")
    head.autoscaled = 1
    return harness, head


async def test_traffic_follows_the_replicas_and_they_follow_the_traffic() -> None:
    harness, head = await an_autoscaled_upgrade()
    green = harness.pending
    await harness.run(30)
    assert harness.weights[green] == 4, "one replica of fifty, and one that may follow"
    for _ in range(200):
        share = harness.weights.get(green, 0)
        replicas = head.autoscaled or 1
        assert share * BLUE_REPLICAS / 100 <= max(replicas + 1, replicas * 1.25), (
            "never far more than what runs"
        )
        head.autoscaled = max(replicas, math.ceil(BLUE_REPLICAS * share / 100))
        await harness.run(2)
        if harness.is_complete() and harness.active == green:
            break
    assert (harness.active, harness.weights) == (green, {green: 100})


@pytest.mark.parametrize("value", ["false"])
async def test_a_user_may_do_without_it(value: str) -> None:
    harness, _ = await an_autoscaled_upgrade(**{labels.CAPACITY_PARITY: value})
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)


async def test_a_silent_dashboard_sends_all_of_the_traffic_to_no_single_replica() -> None:
    harness, _ = await an_autoscaled_upgrade()
    blue, green = harness.active, harness.pending
    await harness.until(lambda: harness.weights.get(green, 0) == 4, seconds=30)
    harness.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await harness.run(60)
    assert harness.weights == {blue: 96, green: 4}, (
        "fifty replicas may still serve, and one cannot do their work"
    )
    for role in ("head", "worker"):
        harness.kube.set_status(POD, NAMESPACE, f"{blue}-{role}", {"phase": "Failed"})
    await harness.run(5)
    assert harness.weights.get(green) == 100, "none of its pods takes requests"


WAITS = "runs too few replicas of app/Model to get more of the traffic"


async def test_a_step_that_waits_for_replicas_reports_it_once_and_only_while_it_waits() -> None:
    harness, head = await an_autoscaled_upgrade()
    green = harness.pending
    await harness.run(40)
    assert f"RayCluster {green} {WAITS}" in harness.message("UpgradeInProgress")
    assert 'raybus.io/capacity-parity: "false"' in harness.message("UpgradeInProgress")
    for replicas in (2, 1, 2, 1):
        head.autoscaled = replicas
        await harness.run(20)
    assert harness.reasons().count("InsufficientReplicas") == 1
    head.autoscaled = BLUE_REPLICAS
    await harness.until(lambda: WAITS not in harness.message("UpgradeInProgress"), seconds=30)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)


async def test_an_upgrade_that_stalls_for_want_of_replicas_names_them() -> None:
    harness, _ = await an_autoscaled_upgrade(**{labels.PROGRESS_DEADLINE: "60s"})
    await harness.until(
        lambda: harness.condition("UpgradeStalled") == ("True", "InsufficientReplicas"), seconds=120
    )
    assert WAITS in harness.message("UpgradeStalled")


async def test_a_step_that_may_continue_reports_nothing_of_replicas() -> None:
    harness, _ = await an_autoscaled_upgrade(**{labels.CAPACITY_PARITY: "false"})
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)
    assert "InsufficientReplicas" not in harness.reasons()
