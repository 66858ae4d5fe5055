"""Upgrades where no second cluster fits: some capacity may be missing, never more than the user allows."""

import pytest

from common import labels
from common.api.opaque import Json
from support.builders.ray_service import a_strategy
from support.simulator.simulator import BLUE, GREEN, Simulator, a_pair, a_running_pair

pytestmark = pytest.mark.long

ALLOWED = {labels.MAX_UNAVAILABLE: "20"}


def totals(sim: Simulator) -> list[int]:
    return [sum(each or 0 for each in view.capacities) for _, view in sim.observer.trace]


@pytest.mark.parametrize("step", [pytest.param(0, id="as KubeRay's rule wants it"), 5, 20])
async def test_an_upgrade_without_surge_ends_and_never_holds_less_than_the_floor(step: int) -> None:
    strategy = a_strategy(surge=0, step=step, interval=1)
    sim = await a_running_pair(annotations=ALLOWED, upgradeStrategy=strategy)
    blue = sim.active
    sim.observer.trace.clear()
    sim.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=strategy)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=200)
    found = totals(sim)
    assert (min(found), max(found)) == (80, 100)
    assert sim.capacities(sim.active) == [0, 20, 40, 60, 80, 100]
    assert "UpgradeCannotProgress" not in sim.reasons()


async def test_it_rolls_back_by_the_same_steps() -> None:
    strategy = a_strategy(surge=0, step=5, interval=1)
    sim = await a_running_pair(annotations=ALLOWED, upgradeStrategy=strategy)
    blue = sim.active
    sim.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights[1] == 60, seconds=100)
    sim.observer.trace.clear()
    sim.apply(config=BLUE, annotations=ALLOWED, upgradeStrategy=strategy)
    await sim.until(sim.is_complete, seconds=200)
    assert (sim.active, sim.weights) == (blue, {blue: 100})
    assert min(totals(sim)) >= 80
    assert max(totals(sim)) <= 100


@pytest.mark.parametrize(
    ("annotations", "step"),
    [({labels.MAX_UNAVAILABLE: "4"}, 5), ({labels.MAX_UNAVAILABLE: "all"}, 5), ({}, 5)],
)
async def test_a_step_beyond_what_may_be_missing_is_refused(annotations: Json, step: int) -> None:
    sim = a_pair()
    sim.apply(annotations=annotations, upgradeStrategy=a_strategy(surge=0, step=step))
    await sim.run(5)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in sim.message("Ready")
