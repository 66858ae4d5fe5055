"""Every way out of an upgrade ends with one cluster, and Serve runs it with all of its capacity."""

from typing import Any

import pytest

from common import labels
from common.feature_gates import Gates
from service_reconciler.settings import Config
from support.builders.ray_service import a_serve_config, a_strategy
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_pair, a_running_pair

ALLOWED = {labels.MAX_UNAVAILABLE: "20"}
FULL = a_strategy(surge=0, step=20, interval=2)
BLUE_GREEN = {"type": "NewCluster"}
NO_GATES: Gates = frozenset()


def capacity(sim: Simulator) -> float:
    """Return the target capacity that Serve of the active cluster runs with."""
    found = sim.serve.head(f"{sim.active}-head-svc").details()["target_capacity"]
    return 100 if found is None else found


async def in_the_middle() -> Simulator:
    """Return an upgrade on a full cluster with 20 percent missing."""
    sim = await a_running_pair(annotations=ALLOWED, upgradeStrategy=FULL)
    sim.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=FULL)
    await sim.until(lambda: (sim.view.weights[1] or 0) >= 40, seconds=60)
    return sim


async def ended(sim: Simulator, *, active: str) -> None:
    await sim.until(lambda: sim.is_complete() and sim.active == active, seconds=120)
    await sim.run(20)
    assert capacity(sim) == 100
    sent = len(sim.puts(sim.active))
    await sim.run(60)
    assert (capacity(sim), len(sim.puts(sim.active))) == (100, sent)


async def test_with_another_strategy() -> None:
    sim = await in_the_middle()
    sim.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(sim, active=sim.pending)


async def test_with_another_strategy_and_the_spec_reverted() -> None:
    sim = await in_the_middle()
    blue = sim.active
    sim.apply(config=BLUE, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(sim, active=blue)


async def test_with_another_strategy_and_without_the_annotation() -> None:
    sim = await in_the_middle()
    sim.apply(config=GREEN, upgradeStrategy=BLUE_GREEN)
    await ended(sim, active=sim.pending)


async def test_without_the_gate() -> None:
    sim = await in_the_middle()
    green = sim.pending
    sim.settings = Config(gates=NO_GATES)
    sim.restart()
    await ended(sim, active=green)


@pytest.mark.parametrize("strategy", [FULL, BLUE_GREEN], ids=["steps", "another strategy"])
async def test_with_an_abort(strategy: Any) -> None:
    sim = await in_the_middle()
    blue = sim.active
    sim.apply(config=GREEN, annotations={**ALLOWED, labels.ABORT: "true"}, upgradeStrategy=strategy)
    await ended(sim, active=blue)


async def test_with_a_promotion() -> None:
    sim = await in_the_middle()
    green = sim.pending
    sim.apply(config=GREEN, annotations={**ALLOWED, labels.PROMOTE: "true"}, upgradeStrategy=FULL)
    await ended(sim, active=green)


async def test_with_another_strategy_right_after_the_promotion() -> None:
    sim = await in_the_middle()
    green = sim.pending
    await sim.until(lambda: sim.active == green, seconds=60)
    sim.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    await ended(sim, active=green)


async def test_a_capacity_that_the_users_own_config_asks_for_is_left_alone() -> None:
    config = f"target_capacity: 60\n{a_serve_config()}"
    sim = a_pair()
    sim.apply(serve=config, upgradeStrategy=BLUE_GREEN)
    await sim.until(sim.is_complete)
    sent = len(sim.puts(sim.active))
    await sim.run(60)
    assert (capacity(sim), len(sim.puts(sim.active))) == (60, sent)


async def test_a_cluster_that_lacks_capacity_gets_it_while_another_is_on_its_way() -> None:
    sim = await in_the_middle()
    sim.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=BLUE_GREEN)
    green = sim.pending
    await sim.until(lambda: sim.active == green, seconds=60)
    sim.ray_clusters.holds_pods = True
    # the first cluster would return
    sim.apply(config=RED, serve=a_serve_config(message="v3"), upgradeStrategy=BLUE_GREEN)
    await sim.run(20)
    assert sim.pending
    assert capacity(sim) == 100
    assert {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in sim.puts(green)
    } == {"v1"}
