"""Without the bus traffic-manager guards upgrades by the API server and the dashboards alone: traffic leaves what is dead (ADR 17)."""

import pytest

from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from scenario.upgrade.test_health import BLOWS, FULL, LIMIT, Blow, expect_shed, halfway
from support.builders.ray_service import NAMESPACE, a_strategy
from support.simulator.simulator import GREEN, Simulator, a_running_pair


def silence(sim: Simulator) -> None:
    sim.bus.is_silent = True


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS.keys())
async def test_a_cluster_that_dies_while_the_bus_is_silent_loses_its_traffic_within_5_s(
    blow: Blow, victim: str, is_back: bool
) -> None:
    await expect_shed(await halfway(), blow, victim, is_back=is_back, before=silence)


async def test_nothing_grows_and_nothing_is_sent_while_the_bus_is_silent() -> None:
    steps = a_strategy(surge=100, step=10, interval=1)
    sim = await a_running_pair(upgradeStrategy=steps)
    sim.apply(config=GREEN, upgradeStrategy=steps)
    await sim.until(lambda: 0 < (sim.view.weights[1] or 0) < 60, seconds=60)
    silence(sim)
    writes, puts = (len(sim.kube.writes()), sum(len(sim.puts(each)) for each in sim.clusters))
    weights = sim.weights
    await sim.run(60)
    assert (len(sim.kube.writes()), sim.weights) == (writes, weights)
    assert sum(len(sim.puts(each)) for each in sim.clusters) == puts
    sim.bus.is_silent = False
    sim.restart()
    await sim.until(lambda: sim.is_complete() and sim.weights.get(sim.active) == 100, seconds=100)


async def test_what_shed_stays_there_until_the_bus_is_back_and_the_upgrade_goes_on_then() -> None:
    sim = await halfway(upgradeStrategy=a_strategy(surge=100, step=50, interval=30))
    blue, green = sim.active, sim.pending
    silence(sim)
    BLOWS["its only worker is killed"](sim, green)
    await sim.run(LIMIT)
    assert sim.weights == {blue: 100, green: 0}
    await sim.run(120)
    assert sim.weights == {blue: 100, green: 0}


async def test_a_route_that_changed_while_the_bus_is_silent_is_read_anew_and_not_overwritten() -> (
    None
):
    sim = await halfway()
    green = sim.pending
    silence(sim)
    route = sim.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    sim.kube.put(HTTP_ROUTE, {**route, "spec": {**route["spec"], "hostnames": ["a.example"]}})
    BLOWS["its only worker is killed"](sim, green)
    await sim.run(LIMIT)
    held = sim.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    assert held["spec"]["hostnames"] == ["a.example"]
    assert sim.weights[green] == 0


async def test_a_service_without_an_upgrade_costs_no_request_while_the_bus_is_silent() -> None:
    sim = await a_running_pair(upgradeStrategy=FULL)
    silence(sim)
    before = len(sim.kube.requests)
    await sim.run(120)
    assert len(sim.kube.requests) == before


async def test_a_pending_cluster_that_is_deleted_while_the_bus_is_silent_gets_nothing_any_more() -> (
    None
):
    sim = await halfway()
    blue, green = sim.active, sim.pending
    silence(sim)
    await sim.kube.delete(RAY_CLUSTER, NAMESPACE, green)
    await sim.run(LIMIT)
    assert sim.weights == {blue: 100}
