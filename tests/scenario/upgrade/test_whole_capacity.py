"""Every way out of an upgrade ends with one cluster, and Serve runs it with all of its capacity."""

from typing import Any

import pytest

from common import labels
from common.feature_gates import Gates
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair, a_running_pair
from service_reconciler.settings import Config
from support.builders.ray_service import a_serve_config, a_strategy

ALLOWED = {labels.MAX_UNAVAILABLE: "20"}
FULL = a_strategy(surge=0, step=20, interval=2)
BLUE_GREEN = {"type": "NewCluster"}
NO_GATES: Gates = frozenset()


def capacity(harness: Pair) -> float:
    """Return the target capacity that Serve of the active cluster runs with."""
    found = harness.serve.head(f"{harness.active}-head-svc").details()["target_capacity"]
    return 100 if found is None else found


async def in_the_middle() -> Pair:
    """Return an upgrade on a full cluster with 20 percent missing."""
    harness = await a_running_pair(annotations=ALLOWED, upgradeStrategy=FULL)
    harness.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=FULL)
    await harness.until(lambda: (harness.view.weights[1] or 0) >= 40, seconds=60)
    return harness


async def ended(harness: Pair, *, active: str) -> None:
    await harness.until(lambda: harness.is_complete() and harness.active == active, seconds=120)
    await harness.run(20)
    assert capacity(harness) == 100
    sent = len(harness.puts(harness.active))
    await harness.run(60)
    assert (capacity(harness), len(harness.puts(harness.active))) == (100, sent)


async def test_with_another_strategy() -> None:
    harness = await in_the_middle()
    harness.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(harness, active=harness.pending)


async def test_with_another_strategy_and_the_spec_reverted() -> None:
    harness = await in_the_middle()
    blue = harness.active
    harness.apply(config=BLUE, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(harness, active=blue)


async def test_with_another_strategy_and_without_the_annotation() -> None:
    harness = await in_the_middle()
    harness.apply(config=GREEN, upgradeStrategy=BLUE_GREEN)
    await ended(harness, active=harness.pending)


async def test_without_the_gate() -> None:
    harness = await in_the_middle()
    green = harness.pending
    harness.config = Config(gates=NO_GATES)
    harness.restart()
    await ended(harness, active=green)


@pytest.mark.parametrize("strategy", [FULL, BLUE_GREEN], ids=["steps", "another strategy"])
async def test_with_an_abort(strategy: Any) -> None:
    harness = await in_the_middle()
    blue = harness.active
    harness.apply(
        config=GREEN, annotations={**ALLOWED, labels.ABORT: "true"}, upgradeStrategy=strategy
    )
    await ended(harness, active=blue)


async def test_with_a_promotion() -> None:
    harness = await in_the_middle()
    green = harness.pending
    harness.apply(
        config=GREEN, annotations={**ALLOWED, labels.PROMOTE: "true"}, upgradeStrategy=FULL
    )
    await ended(harness, active=green)


async def test_with_another_strategy_right_after_the_promotion() -> None:
    harness = await in_the_middle()
    green = harness.pending
    await harness.until(lambda: harness.active == green, seconds=60)
    harness.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(harness, active=green)


async def test_a_capacity_that_the_users_own_config_asks_for_is_left_alone() -> None:
    config = f"target_capacity: 60\n{a_serve_config()}"
    harness = Pair()
    harness.apply(serve=config, upgradeStrategy=BLUE_GREEN)
    await harness.until(harness.is_complete)
    sent = len(harness.puts(harness.active))
    await harness.run(60)
    assert (capacity(harness), len(harness.puts(harness.active))) == (60, sent)


async def test_a_cluster_that_lacks_capacity_gets_it_while_another_is_on_its_way() -> None:
    harness = await in_the_middle()
    harness.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    green = harness.pending
    await harness.until(lambda: harness.active == green, seconds=60)
    harness.holds_pods = True
    # the first cluster would return
    harness.apply(config=RED, serve=a_serve_config(message="v3"), upgradeStrategy=BLUE_GREEN)
    await harness.run(20)
    assert harness.pending
    assert capacity(harness) == 100
    assert {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]
        for each in harness.puts(green)
    } == {"v1"}
