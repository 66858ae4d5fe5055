"""Without the bus traffic-manager guards upgrades by the API server and the dashboards alone: traffic leaves what is dead (ADR 17)."""

import pytest

from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from scenario.upgrade.test_health import BLOWS, FULL, LIMIT, Blow, expect_shed, halfway
from scenario.upgrade.world import GREEN, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_strategy


def silence(world: Pair) -> None:
    world.is_bus_silent = True


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS.keys())
async def test_a_cluster_that_dies_while_the_bus_is_silent_loses_its_traffic_within_5_s(
    blow: Blow, victim: str, is_back: bool
) -> None:
    await expect_shed(await halfway(), blow, victim, is_back=is_back, before=silence)


async def test_nothing_grows_and_nothing_is_sent_while_the_bus_is_silent() -> None:
    steps = a_strategy(surge=100, step=10, interval=1)
    world = await a_running_pair(upgradeStrategy=steps)
    world.apply(config=GREEN, upgradeStrategy=steps)
    await world.until(lambda: 0 < (world.view.weights[1] or 0) < 60, seconds=60)
    silence(world)
    writes, puts = len(world.kube.writes()), sum(len(world.puts(each)) for each in world.clusters)
    weights = world.weights
    await world.run(60)
    assert (len(world.kube.writes()), world.weights) == (writes, weights)
    assert sum(len(world.puts(each)) for each in world.clusters) == puts
    world.is_bus_silent = False
    world.restart()
    await world.until(lambda: world.is_settled() and world.weights.get(world.active) == 100, seconds=100)


async def test_what_shed_stays_there_until_the_bus_is_back_and_the_upgrade_goes_on_then() -> None:
    world = await halfway(upgradeStrategy=a_strategy(surge=100, step=50, interval=30))
    blue, green = world.active, world.pending
    silence(world)
    BLOWS["its only worker is killed"](world, green)
    await world.run(LIMIT)
    assert world.weights == {blue: 100, green: 0}
    await world.run(120)
    assert world.weights == {blue: 100, green: 0}


async def test_a_route_that_changed_while_the_bus_is_silent_is_read_anew_and_not_overwritten() -> None:
    world = await halfway()
    green = world.pending
    silence(world)
    route = world.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    world.kube.put(HTTP_ROUTE, {**route, "spec": {**route["spec"], "hostnames": ["a.example"]}})
    BLOWS["its only worker is killed"](world, green)
    await world.run(LIMIT)
    held = world.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    assert held["spec"]["hostnames"] == ["a.example"]
    assert world.weights[green] == 0


async def test_a_service_without_an_upgrade_costs_no_request_while_the_bus_is_silent() -> None:
    world = await a_running_pair(upgradeStrategy=FULL)
    silence(world)
    before = len(world.kube.requests)
    await world.run(120)
    assert len(world.kube.requests) == before


async def test_a_pending_cluster_that_is_deleted_while_the_bus_is_silent_gets_nothing_any_more() -> None:
    world = await halfway()
    blue, green = world.active, world.pending
    silence(world)
    await world.kube.delete(RAY_CLUSTER, NAMESPACE, green)
    await world.run(LIMIT)
    assert world.weights == {blue: 100}
