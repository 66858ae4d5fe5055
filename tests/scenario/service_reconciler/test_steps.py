"""What this service owes to upgrades in steps, with the traffic manager beside it; spec rayservice §8, acceptance 9, 93, 94."""

from datetime import timedelta
from itertools import pairwise

import pytest

from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from scenario.upgrade.world import BLUE, GREEN, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy


@pytest.mark.acceptance("rayservice", 9)
async def test_09_without_a_surge_all_of_it_may_come_at_once() -> None:
    strategy = a_strategy(surge=None, step=50, interval=1)
    world = await a_running_pair(upgradeStrategy=strategy)
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.until(lambda: bool(world.pending))
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green)
    assert world.capacities(green) == [0, 100]


@pytest.mark.acceptance("rayservice", 93)
async def test_93_wiped_in_mid_upgrade_the_route_still_knows_how_far_it_was() -> None:
    strategy = a_strategy(surge=20, step=10, interval=5)
    world = await a_running_pair(upgradeStrategy=strategy)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights == (70, 30), seconds=120)
    green, before = world.pending, world.view
    world.kube.set_status(RAY_SERVICE, "default", "demo", {})
    world.restart()
    await world.look()
    assert (world.active, world.pending, world.view) == (blue, green, before)
    assert world.weights == {blue: 70, green: 30}
    held = [view.weights[1] for _, view in world.trace if view.weights[1]]
    await world.until(lambda: world.is_settled() and world.active == green, seconds=120)
    later = [view.weights[1] for _, view in world.trace if view.weights[1]]
    assert later[: len(held)] == held
    assert min(later[len(held) :]) >= 30


@pytest.mark.acceptance("rayservice", 94)
@pytest.mark.parametrize("hours", [-1, 1])
async def test_94_steps_go_on_in_their_time_when_the_clock_jumps(hours: int) -> None:
    interval = 4
    strategy = a_strategy(surge=50, step=10, interval=interval)
    world = await a_running_pair(upgradeStrategy=strategy)
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights == (80, 20), seconds=120)
    world.jump(timedelta(hours=hours))
    world.trace.clear()
    jumped = world.clock.monotonic()
    await world.until(lambda: world.view.weights == (40, 60), seconds=5 * 2 * interval)
    moved = {view.weights[1]: at for at, view in reversed(world.trace)}
    times = [moved[share] for share in (30, 40, 50, 60)]
    waits = [later - earlier for earlier, later in pairwise([jumped, *times])]
    assert all(wait <= 2 * interval for wait in waits), waits
    assert all(wait >= interval for wait in waits[1:]), waits  # no step is made up for
    await world.until(lambda: world.is_settled() and not world.pending, seconds=300)


async def test_a_pending_cluster_that_somebody_deletes_in_mid_upgrade_starts_again_from_nothing() -> None:
    strategy = a_strategy(surge=50, step=10, interval=2)
    world = await a_running_pair(upgradeStrategy=strategy)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights == (70, 30), seconds=120)
    await world.kube.delete(RAY_CLUSTER, "default", world.pending)
    await world.until(lambda: world.weights.get(blue) == 100, seconds=2)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=120)
    assert world.service["spec"]["rayClusterConfig"] != BLUE


async def test_a_dashboard_that_answers_for_the_other_cluster_gets_neither_config_nor_capacity() -> None:
    strategy = a_strategy(surge=50, step=10, interval=2)
    world = await a_running_pair(upgradeStrategy=strategy)
    blue, sent = world.active, len(world.puts(world.active))
    world.holds_pods = True
    world.apply(config=GREEN, upgradeStrategy=strategy, serve=a_serve_config(message="v2"))
    await world.run(2)
    green = world.pending
    own = world.serve.head(f"{green}-head-svc")
    world.serve.heads[f"{green}-head-svc"] = world.serve.head(f"{blue}-head-svc")
    world.holds_pods = False
    await world.run(60)
    assert (world.active, len(world.puts(blue)), world.weights[blue]) == (blue, sent, 100)
    text = f"the dashboard of RayCluster {green} answers for RayCluster {blue}"
    assert text in world.message("UpgradeInProgress")
    world.serve.heads[f"{green}-head-svc"] = own
    await world.until(lambda: world.is_settled() and world.active == green, seconds=120)
