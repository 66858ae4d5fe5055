"""Every way out of an upgrade ends with one cluster, and Serve runs it with all of its capacity."""

from typing import Any

import pytest

from common import labels
from common.feature_gates import Gates
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair
from service_reconciler.config import Config
from support.builders.ray_service import a_serve_config, a_strategy

ALLOWED = {labels.MAX_UNAVAILABLE: "20"}
FULL = a_strategy(surge=0, step=20, interval=2)
BLUE_GREEN = {"type": "NewCluster"}
NO_GATES: Gates = frozenset()


def capacity(world: Pair) -> float:
    """Return the target capacity that Serve of the active cluster runs with."""
    found = world.serve.head(f"{world.active}-head-svc").details()["target_capacity"]
    return 100 if found is None else found


async def in_the_middle() -> Pair:
    """Return an upgrade on a full cluster with 20 percent missing."""
    world = await a_running_pair(annotations=ALLOWED, upgradeStrategy=FULL)
    world.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=FULL)
    await world.until(lambda: (world.view.weights[1] or 0) >= 40, seconds=60)
    return world


async def ended(world: Pair, *, active: str) -> None:
    await world.until(lambda: world.is_settled() and world.active == active, seconds=120)
    await world.run(20)
    assert capacity(world) == 100
    sent = len(world.puts(world.active))
    await world.run(60)
    assert (capacity(world), len(world.puts(world.active))) == (100, sent)


async def test_with_another_strategy() -> None:
    world = await in_the_middle()
    world.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(world, active=world.pending)


async def test_with_another_strategy_and_the_spec_reverted() -> None:
    world = await in_the_middle()
    blue = world.active
    world.apply(config=BLUE, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(world, active=blue)


async def test_with_another_strategy_and_without_the_annotation() -> None:
    world = await in_the_middle()
    world.apply(config=GREEN, upgradeStrategy=BLUE_GREEN)
    await ended(world, active=world.pending)


async def test_without_the_gate() -> None:
    world = await in_the_middle()
    green = world.pending
    world.config = Config(gates=NO_GATES)
    world.restart()
    await ended(world, active=green)


@pytest.mark.parametrize("strategy", [FULL, BLUE_GREEN], ids=["steps", "another strategy"])
async def test_with_an_abort(strategy: Any) -> None:
    world = await in_the_middle()
    blue = world.active
    world.apply(config=GREEN, annotations={**ALLOWED, labels.ABORT: "true"}, upgradeStrategy=strategy)
    await ended(world, active=blue)


async def test_with_a_promotion() -> None:
    world = await in_the_middle()
    green = world.pending
    world.apply(config=GREEN, annotations={**ALLOWED, labels.PROMOTE: "true"}, upgradeStrategy=FULL)
    await ended(world, active=green)


async def test_with_another_strategy_right_after_the_promotion() -> None:
    world = await in_the_middle()
    green = world.pending
    await world.until(lambda: world.active == green, seconds=60)
    world.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(world, active=green)


async def test_a_capacity_that_the_users_own_config_asks_for_is_left_alone() -> None:
    config = f"target_capacity: 60\n{a_serve_config()}"
    world = Pair()
    world.apply(serve=config, upgradeStrategy=BLUE_GREEN)
    await world.until(world.is_settled)
    sent = len(world.puts(world.active))
    await world.run(60)
    assert (capacity(world), len(world.puts(world.active))) == (60, sent)


async def test_a_cluster_that_lacks_capacity_gets_it_while_another_is_on_its_way() -> None:
    world = await in_the_middle()
    world.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    green = world.pending
    await world.until(lambda: world.active == green, seconds=60)
    world.holds_pods = True
    world.apply(config=BLUE, serve=a_serve_config(message="v3"), upgradeStrategy=BLUE_GREEN)
    await world.run(20)
    assert world.pending
    assert capacity(world) == 100
    assert {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in world.puts(green)} == {"v1"}
