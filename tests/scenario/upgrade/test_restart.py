"""Both services may die before and after each write; spec rayservice §21, acceptance 53."""

import pytest

from common.api.ray_cluster import RayCluster
from support.builders.ray_service import a_serve_config, a_strategy
from support.sampling import one_of
from support.simulator.simulator import GREEN, Simulator, a_running_pair

FAST = a_strategy(surge=50, step=50, interval=1)
WRITES = 60
"""Minimum number of writes of an upgrade of two steps; the first test checks this."""


async def an_upgrade(*, before: int | None = None, after: int | None = None) -> Simulator:
    """Run an upgrade in which both processes die around one of its writes; return its end."""
    sim = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=0)
    blue = sim.active
    sim.writes.count = 0
    sim.writes.kill_before, sim.writes.kill_after = before, after
    sim.apply(
        config=GREEN,
        serve=a_serve_config(message="v2"),
        upgradeStrategy=FAST,
        rayClusterDeletionDelaySeconds=0,
    )
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    await sim.until(lambda: len(sim.clusters) == 1, seconds=20)
    await sim.run(1)
    return sim


async def test_an_undisturbed_upgrade_has_no_more_writes_than_the_test_below_disturbs() -> None:
    assert WRITES - 8 <= (await an_upgrade()).writes.count <= WRITES


def messages(sim: Simulator, cluster: str) -> set[str]:
    return {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in sim.puts(cluster)
    }


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize("write", one_of(4, range(1, WRITES, 4)))
@pytest.mark.parametrize("side", ["before", "after"])
async def test_53_a_death_around_any_write_changes_nothing_but_the_time(
    side: str, write: int
) -> None:
    sim = await an_upgrade(**{side: write})
    green = sim.active
    assert (sim.clusters, sim.weights, sim.selected("demo-head-svc")) == (
        [green],
        {green: 100},
        green,
    )
    created = [each for each in sim.kube.writes() if each.startswith("create RayCluster")]
    assert len(set(created)) == 2
    old = next(
        name
        for name in (each.removeprefix("create RayCluster ") for each in created)
        if name != green
    )
    assert (messages(sim, old), messages(sim, green)) == ({"v1"}, {"v2"})
    assert sim.capacities(green)[-1] == 100


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize("seconds", one_of(2, [1.5, 3, 4.25, 5, 6.5, 8]))
async def test_53_a_silence_of_either_service_only_delays(seconds: float) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.run(seconds)
    for down in ("is_service_down", "is_traffic_down"):
        setattr(sim, down, True)
        await sim.run(5)
        setattr(sim, down, False)
        sim.restart()
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    await sim.run(1)
    assert sim.weights == {sim.active: 100}


async def test_a_pending_cluster_that_the_bus_has_not_delivered_yet_keeps_its_traffic() -> None:
    slow = a_strategy(surge=50, step=25, interval=20)
    sim = await a_running_pair(upgradeStrategy=slow)
    sim.apply(config=GREEN, upgradeStrategy=slow)
    await sim.until(lambda: sim.view.weights[1] == 25, seconds=60)
    before = sim.weights
    sim.restart()
    for app in (sim.services["service"].parts, sim.services["traffic"].parts):
        app.cache.forget(app.cache.list_all(RayCluster))
    await sim.reconcile()
    assert sim.weights == before
    await sim.until(lambda: sim.view.weights[1] == 50, seconds=60)
    shares = [
        view.weights[1] or 0 for _, view in sim.observer.trace if view.capacities[1] is not None
    ]
    assert shares == sorted(shares)
