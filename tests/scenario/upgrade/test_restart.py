"""Both services may die before and after each write; spec rayservice §21, acceptance 53."""

import pytest

from common.api.ray_cluster import RayCluster
from scenario.upgrade.world import GREEN, Pair, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy
from support.sampling import one_of

FAST = a_strategy(surge=50, step=50, interval=1)
WRITES = 60
"""At least as many as an upgrade of two steps takes: the first test says so."""


async def an_upgrade(*, before: int | None = None, after: int | None = None) -> Pair:
    """Run an upgrade in which both processes die around one of its writes; return its end."""
    world = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=0)
    blue = world.active
    world.writes = 0
    world.kill_before, world.kill_after = before, after
    world.apply(
        config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=0
    )
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    await world.until(lambda: len(world.clusters) == 1, seconds=20)
    await world.run(1)
    return world


async def test_an_undisturbed_upgrade_has_no_more_writes_than_the_test_below_disturbs() -> None:
    assert WRITES - 8 <= (await an_upgrade()).writes <= WRITES


def messages(world: Pair, cluster: str) -> set[str]:
    return {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in world.puts(cluster)}


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize("write", one_of(4, range(1, WRITES, 4)))
@pytest.mark.parametrize("side", ["before", "after"])
async def test_53_a_death_around_any_write_changes_nothing_but_the_time(side: str, write: int) -> None:
    world = await an_upgrade(**{side: write})
    green = world.active
    assert (world.clusters, world.weights, world.selected("demo-head-svc")) == ([green], {green: 100}, green)
    created = [each for each in world.kube.writes() if each.startswith("create RayCluster")]
    assert len(set(created)) == 2
    old = next(name for name in (each.removeprefix("create RayCluster ") for each in created) if name != green)
    assert (messages(world, old), messages(world, green)) == ({"v1"}, {"v2"})
    assert world.capacities(green)[-1] == 100


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize("seconds", one_of(2, [1.5, 3, 4.25, 5, 6.5, 8]))
async def test_53_a_silence_of_either_service_only_delays(seconds: float) -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.run(seconds)
    for down in ("is_service_down", "is_traffic_down"):
        setattr(world, down, True)
        await world.run(5)
        setattr(world, down, False)
        world.restart()
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    await world.run(1)
    assert world.weights == {world.active: 100}


async def test_a_pending_cluster_that_the_bus_has_not_told_of_yet_keeps_its_traffic() -> None:
    slow = a_strategy(surge=50, step=25, interval=20)
    world = await a_running_pair(upgradeStrategy=slow)
    world.apply(config=GREEN, upgradeStrategy=slow)
    await world.until(lambda: world.view.weights[1] == 25, seconds=60)
    before = world.weights
    world.restart()
    for app in (world.app, world.traffic):
        app.cache.forget(app.cache.all(RayCluster))
    await world.look()
    assert world.weights == before
    await world.until(lambda: world.view.weights[1] == 50, seconds=60)
    shares = [view.weights[1] or 0 for _, view in world.trace if view.capacities[1] is not None]
    assert shares == sorted(shares)
