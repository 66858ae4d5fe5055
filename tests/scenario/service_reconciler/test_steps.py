"""The duties of service-reconciler in upgrades in steps, with traffic-manager beside it.

Spec rayservice §8, acceptance 9, 93, 94.
"""

from datetime import timedelta
from itertools import pairwise

import pytest

from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from support.builders.ray_service import a_serve_config, a_strategy
from support.simulator.simulator import BLUE, GREEN, a_running_pair


@pytest.mark.acceptance("rayservice", 9)
async def test_09_without_a_surge_all_of_it_may_come_at_once() -> None:
    strategy = a_strategy(surge=None, step=50, interval=1)
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: bool(sim.pending))
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green)
    assert sim.capacities(green) == [0, 100]


@pytest.mark.acceptance("rayservice", 93)
async def test_93_wiped_in_mid_upgrade_the_route_still_knows_how_far_it_was() -> None:
    strategy = a_strategy(surge=20, step=10, interval=5)
    sim = await a_running_pair(upgradeStrategy=strategy)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights == (70, 30), seconds=120)
    green, before = sim.pending, sim.view
    sim.kube.set_status(RAY_SERVICE, "default", "demo", {})
    sim.restart()
    await sim.reconcile()
    assert (sim.active, sim.pending, sim.view) == (blue, green, before)
    assert sim.weights == {blue: 70, green: 30}
    held = [view.weights[1] for _, view in sim.observer.trace if view.weights[1]]
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=120)
    later = [view.weights[1] for _, view in sim.observer.trace if view.weights[1]]
    assert later[: len(held)] == held
    assert min(later[len(held) :]) >= 30


@pytest.mark.acceptance("rayservice", 94)
@pytest.mark.parametrize("hours", [-1, 1])
async def test_94_steps_go_on_in_their_time_when_the_clock_jumps(hours: int) -> None:
    interval = 4
    strategy = a_strategy(surge=50, step=10, interval=interval)
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights == (80, 20), seconds=120)
    sim.jump(timedelta(hours=hours))
    sim.observer.trace.clear()
    jumped = sim.clock.monotonic()
    await sim.until(lambda: sim.view.weights == (40, 60), seconds=5 * 2 * interval)
    moved = {view.weights[1]: at for at, view in reversed(sim.observer.trace)}
    times = [moved[share] for share in (30, 40, 50, 60)]
    waits = [later - earlier for earlier, later in pairwise([jumped, *times])]
    assert all(wait <= 2 * interval for wait in waits), waits
    assert all(wait >= interval for wait in waits[1:]), waits  # no step is made up for
    await sim.until(lambda: sim.is_complete() and not sim.pending, seconds=300)


async def test_a_pending_cluster_that_somebody_deletes_in_mid_upgrade_starts_again_from_nothing() -> (
    None
):
    strategy = a_strategy(surge=50, step=10, interval=2)
    sim = await a_running_pair(upgradeStrategy=strategy)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights == (70, 30), seconds=120)
    await sim.kube.delete(RAY_CLUSTER, "default", sim.pending)
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=2)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=120)
    assert sim.service["spec"]["rayClusterConfig"] != BLUE


async def test_a_dashboard_that_answers_for_the_other_cluster_gets_neither_config_nor_capacity() -> (
    None
):
    strategy = a_strategy(surge=50, step=10, interval=2)
    sim = await a_running_pair(upgradeStrategy=strategy)
    blue, sent = sim.active, len(sim.puts(sim.active))
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, upgradeStrategy=strategy, serve=a_serve_config(message="v2"))
    await sim.run(2)
    green = sim.pending
    own = sim.serve.head(f"{green}-head-svc")
    sim.serve.heads[f"{green}-head-svc"] = sim.serve.head(f"{blue}-head-svc")
    sim.ray_clusters.holds_pods = False
    await sim.run(60)
    assert (sim.active, len(sim.puts(blue)), sim.weights[blue]) == (blue, sent, 100)
    text = f"the dashboard of RayCluster {green} answers for RayCluster {blue}"
    assert text in sim.message("UpgradeInProgress")
    sim.serve.heads[f"{green}-head-svc"] = own
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=120)
