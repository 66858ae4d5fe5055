"""What this service owes to upgrades in steps, with the traffic manager beside it; spec rayservice §8, acceptance 9, 93, 94."""

from datetime import timedelta
from itertools import pairwise

import pytest

from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from scenario.upgrade.harness import BLUE, GREEN, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy


@pytest.mark.acceptance("rayservice", 9)
async def test_09_without_a_surge_all_of_it_may_come_at_once() -> None:
    strategy = a_strategy(surge=None, step=50, interval=1)
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: bool(harness.pending))
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green)
    assert harness.capacities(green) == [0, 100]


@pytest.mark.acceptance("rayservice", 93)
async def test_93_wiped_in_mid_upgrade_the_route_still_knows_how_far_it_was() -> None:
    strategy = a_strategy(surge=20, step=10, interval=5)
    harness = await a_running_pair(upgradeStrategy=strategy)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights == (70, 30), seconds=120)
    green, before = harness.pending, harness.view
    harness.kube.set_status(RAY_SERVICE, "default", "demo", {})
    harness.restart()
    await harness.reconcile()
    assert (harness.active, harness.pending, harness.view) == (blue, green, before)
    assert harness.weights == {blue: 70, green: 30}
    held = [view.weights[1] for _, view in harness.trace if view.weights[1]]
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=120)
    later = [view.weights[1] for _, view in harness.trace if view.weights[1]]
    assert later[: len(held)] == held
    assert min(later[len(held) :]) >= 30


@pytest.mark.acceptance("rayservice", 94)
@pytest.mark.parametrize("hours", [-1, 1])
async def test_94_steps_go_on_in_their_time_when_the_clock_jumps(hours: int) -> None:
    interval = 4
    strategy = a_strategy(surge=50, step=10, interval=interval)
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights == (80, 20), seconds=120)
    harness.jump(timedelta(hours=hours))
    harness.trace.clear()
    jumped = harness.clock.monotonic()
    await harness.until(lambda: harness.view.weights == (40, 60), seconds=5 * 2 * interval)
    moved = {view.weights[1]: at for at, view in reversed(harness.trace)}
    times = [moved[share] for share in (30, 40, 50, 60)]
    waits = [later - earlier for earlier, later in pairwise([jumped, *times])]
    assert all(wait <= 2 * interval for wait in waits), waits
    assert all(wait >= interval for wait in waits[1:]), waits  # no step is made up for
    await harness.until(lambda: harness.is_complete() and not harness.pending, seconds=300)


async def test_a_pending_cluster_that_somebody_deletes_in_mid_upgrade_starts_again_from_nothing() -> (
    None
):
    strategy = a_strategy(surge=50, step=10, interval=2)
    harness = await a_running_pair(upgradeStrategy=strategy)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights == (70, 30), seconds=120)
    await harness.kube.delete(RAY_CLUSTER, "default", harness.pending)
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=2)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=120)
    assert harness.service["spec"]["rayClusterConfig"] != BLUE


async def test_a_dashboard_that_answers_for_the_other_cluster_gets_neither_config_nor_capacity() -> (
    None
):
    strategy = a_strategy(surge=50, step=10, interval=2)
    harness = await a_running_pair(upgradeStrategy=strategy)
    blue, sent = harness.active, len(harness.puts(harness.active))
    harness.holds_pods = True
    harness.apply(config=GREEN, upgradeStrategy=strategy, serve=a_serve_config(message="v2"))
    await harness.run(2)
    green = harness.pending
    own = harness.serve.head(f"{green}-head-svc")
    harness.serve.heads[f"{green}-head-svc"] = harness.serve.head(f"{blue}-head-svc")
    harness.holds_pods = False
    await harness.run(60)
    assert (harness.active, len(harness.puts(blue)), harness.weights[blue]) == (blue, sent, 100)
    text = f"the dashboard of RayCluster {green} answers for RayCluster {blue}"
    assert text in harness.message("UpgradeInProgress")
    harness.serve.heads[f"{green}-head-svc"] = own
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=120)
