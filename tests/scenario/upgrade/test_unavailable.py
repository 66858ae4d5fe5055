"""Upgrades where no second cluster fits: some capacity may be missing, never more than the user allows."""

import pytest

from common import labels
from common.api.opaque import Json
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import a_strategy

pytestmark = pytest.mark.long

ALLOWED = {labels.MAX_UNAVAILABLE: "20"}


def totals(world: Pair) -> list[int]:
    return [sum(each or 0 for each in view.capacities) for _, view in world.trace]


@pytest.mark.parametrize("step", [pytest.param(0, id="as KubeRay's rule wants it"), 5, 20])
async def test_an_upgrade_without_surge_ends_and_never_holds_less_than_the_floor(step: int) -> None:
    strategy = a_strategy(surge=0, step=step, interval=1)
    world = await a_running_pair(annotations=ALLOWED, upgradeStrategy=strategy)
    blue = world.active
    world.trace.clear()
    world.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=strategy)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=200)
    found = totals(world)
    assert (min(found), max(found)) == (80, 100)
    assert world.capacities(world.active) == [0, 20, 40, 60, 80, 100]
    assert "UpgradeCannotProgress" not in world.reasons()


async def test_it_goes_back_the_same_way() -> None:
    strategy = a_strategy(surge=0, step=5, interval=1)
    world = await a_running_pair(annotations=ALLOWED, upgradeStrategy=strategy)
    blue = world.active
    world.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights[1] == 60, seconds=100)
    world.trace.clear()
    world.apply(config=BLUE, annotations=ALLOWED, upgradeStrategy=strategy)
    await world.until(world.is_settled, seconds=200)
    assert (world.active, world.weights) == (blue, {blue: 100})
    assert min(totals(world)) >= 80
    assert max(totals(world)) <= 100


@pytest.mark.parametrize(
    ("annotations", "step"), [({labels.MAX_UNAVAILABLE: "4"}, 5), ({labels.MAX_UNAVAILABLE: "all"}, 5), ({}, 5)]
)
async def test_a_step_beyond_what_may_be_missing_is_refused(annotations: Json, step: int) -> None:
    world = Pair()
    world.apply(annotations=annotations, upgradeStrategy=a_strategy(surge=0, step=step))
    await world.run(5)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in world.message("Ready")
