"""Upgrades where no second cluster fits: some capacity may be missing, never more than the user allows."""

import pytest

from common import labels
from common.api.opaque import Json
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import a_strategy

pytestmark = pytest.mark.long

ALLOWED = {labels.MAX_UNAVAILABLE: "20"}


def totals(harness: Pair) -> list[int]:
    return [sum(each or 0 for each in view.capacities) for _, view in harness.trace]


@pytest.mark.parametrize("step", [pytest.param(0, id="as KubeRay's rule wants it"), 5, 20])
async def test_an_upgrade_without_surge_ends_and_never_holds_less_than_the_floor(step: int) -> None:
    strategy = a_strategy(surge=0, step=step, interval=1)
    harness = await a_running_pair(annotations=ALLOWED, upgradeStrategy=strategy)
    blue = harness.active
    harness.trace.clear()
    harness.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=strategy)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=200)
    found = totals(harness)
    assert (min(found), max(found)) == (80, 100)
    assert harness.capacities(harness.active) == [0, 20, 40, 60, 80, 100]
    assert "UpgradeCannotProgress" not in harness.reasons()


async def test_it_rolls_back_by_the_same_steps() -> None:
    strategy = a_strategy(surge=0, step=5, interval=1)
    harness = await a_running_pair(annotations=ALLOWED, upgradeStrategy=strategy)
    blue = harness.active
    harness.apply(config=GREEN, annotations=ALLOWED, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights[1] == 60, seconds=100)
    harness.trace.clear()
    harness.apply(config=BLUE, annotations=ALLOWED, upgradeStrategy=strategy)
    await harness.until(harness.is_complete, seconds=200)
    assert (harness.active, harness.weights) == (blue, {blue: 100})
    assert min(totals(harness)) >= 80
    assert max(totals(harness)) <= 100


@pytest.mark.parametrize(
    ("annotations", "step"),
    [({labels.MAX_UNAVAILABLE: "4"}, 5), ({labels.MAX_UNAVAILABLE: "all"}, 5), ({}, 5)],
)
async def test_a_step_beyond_what_may_be_missing_is_refused(annotations: Json, step: int) -> None:
    harness = Pair()
    harness.apply(annotations=annotations, upgradeStrategy=a_strategy(surge=0, step=step))
    await harness.run(5)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in harness.message(
        "Ready"
    )
