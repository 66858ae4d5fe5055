"""Both services may die before and after each write; spec rayservice §21, acceptance 53."""

import pytest

from common.api.ray_cluster import RayCluster
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy
from support.sampling import one_of

FAST = a_strategy(surge=50, step=50, interval=1)
WRITES = 60
"""At least as many as an upgrade of two steps takes: the first test asserts that."""


async def an_upgrade(*, before: int | None = None, after: int | None = None) -> Pair:
    """Run an upgrade in which both processes die around one of its writes; return its end."""
    harness = await a_running_pair(upgradeStrategy=FAST, rayClusterDeletionDelaySeconds=0)
    blue = harness.active
    harness.writes = 0
    harness.kill_before, harness.kill_after = before, after
    harness.apply(
        config=GREEN,
        serve=a_serve_config(message="v2"),
        upgradeStrategy=FAST,
        rayClusterDeletionDelaySeconds=0,
    )
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    await harness.until(lambda: len(harness.clusters) == 1, seconds=20)
    await harness.run(1)
    return harness


async def test_an_undisturbed_upgrade_has_no_more_writes_than_the_test_below_disturbs() -> None:
    assert WRITES - 8 <= (await an_upgrade()).writes <= WRITES


def messages(harness: Pair, cluster: str) -> set[str]:
    return {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]
        for each in harness.puts(cluster)
    }


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize("write", one_of(4, range(1, WRITES, 4)))
@pytest.mark.parametrize("side", ["before", "after"])
async def test_53_a_death_around_any_write_changes_nothing_but_the_time(
    side: str, write: int
) -> None:
    harness = await an_upgrade(**{side: write})
    green = harness.active
    assert (harness.clusters, harness.weights, harness.selected("demo-head-svc")) == (
        [green],
        {green: 100},
        green,
    )
    created = [each for each in harness.kube.writes() if each.startswith("create RayCluster")]
    assert len(set(created)) == 2
    old = next(
        name
        for name in (each.removeprefix("create RayCluster ") for each in created)
        if name != green
    )
    assert (messages(harness, old), messages(harness, green)) == ({"v1"}, {"v2"})
    assert harness.capacities(green)[-1] == 100


@pytest.mark.acceptance("rayservice", 53)
@pytest.mark.parametrize("seconds", one_of(2, [1.5, 3, 4.25, 5, 6.5, 8]))
async def test_53_a_silence_of_either_service_only_delays(seconds: float) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.run(seconds)
    for down in ("is_service_down", "is_traffic_down"):
        setattr(harness, down, True)
        await harness.run(5)
        setattr(harness, down, False)
        harness.restart()
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    await harness.run(1)
    assert harness.weights == {harness.active: 100}


async def test_a_pending_cluster_that_the_bus_has_not_delivered_yet_keeps_its_traffic() -> None:
    slow = a_strategy(surge=50, step=25, interval=20)
    harness = await a_running_pair(upgradeStrategy=slow)
    harness.apply(config=GREEN, upgradeStrategy=slow)
    await harness.until(lambda: harness.view.weights[1] == 25, seconds=60)
    before = harness.weights
    harness.restart()
    for app in (harness.app, harness.traffic):
        app.cache.forget(app.cache.list_all(RayCluster))
    await harness.reconcile()
    assert harness.weights == before
    await harness.until(lambda: harness.view.weights[1] == 50, seconds=60)
    shares = [view.weights[1] or 0 for _, view in harness.trace if view.capacities[1] is not None]
    assert shares == sorted(shares)
