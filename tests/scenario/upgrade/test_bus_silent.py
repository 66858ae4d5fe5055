"""Without the bus traffic-manager guards upgrades by the API server and the dashboards alone: traffic leaves what is dead (ADR 17)."""

import pytest

from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from scenario.upgrade.test_health import BLOWS, FULL, LIMIT, Blow, expect_shed, halfway
from support.builders.ray_service import NAMESPACE, a_strategy


def silence(harness: Pair) -> None:
    harness.is_bus_silent = True


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS.keys())
async def test_a_cluster_that_dies_while_the_bus_is_silent_loses_its_traffic_within_5_s(
    blow: Blow, victim: str, is_back: bool
) -> None:
    await expect_shed(await halfway(), blow, victim, is_back=is_back, before=silence)


async def test_nothing_grows_and_nothing_is_sent_while_the_bus_is_silent() -> None:
    steps = a_strategy(surge=100, step=10, interval=1)
    harness = await a_running_pair(upgradeStrategy=steps)
    harness.apply(config=GREEN, upgradeStrategy=steps)
    await harness.until(lambda: 0 < (harness.view.weights[1] or 0) < 60, seconds=60)
    silence(harness)
    writes, puts = (
        len(harness.kube.writes()),
        sum(len(harness.puts(each)) for each in harness.clusters),
    )
    weights = harness.weights
    await harness.run(60)
    assert (len(harness.kube.writes()), harness.weights) == (writes, weights)
    assert sum(len(harness.puts(each)) for each in harness.clusters) == puts
    harness.is_bus_silent = False
    harness.restart()
    await harness.until(
        lambda: harness.is_complete() and harness.weights.get(harness.active) == 100, seconds=100
    )


async def test_what_shed_stays_there_until_the_bus_is_back_and_the_upgrade_goes_on_then() -> None:
    harness = await halfway(upgradeStrategy=a_strategy(surge=100, step=50, interval=30))
    blue, green = harness.active, harness.pending
    silence(harness)
    BLOWS["its only worker is killed"](harness, green)
    await harness.run(LIMIT)
    assert harness.weights == {blue: 100, green: 0}
    await harness.run(120)
    assert harness.weights == {blue: 100, green: 0}


async def test_a_route_that_changed_while_the_bus_is_silent_is_read_anew_and_not_overwritten() -> (
    None
):
    harness = await halfway()
    green = harness.pending
    silence(harness)
    route = harness.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    harness.kube.put(HTTP_ROUTE, {**route, "spec": {**route["spec"], "hostnames": ["a.example"]}})
    BLOWS["its only worker is killed"](harness, green)
    await harness.run(LIMIT)
    held = harness.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    assert held["spec"]["hostnames"] == ["a.example"]
    assert harness.weights[green] == 0


async def test_a_service_without_an_upgrade_costs_no_request_while_the_bus_is_silent() -> None:
    harness = await a_running_pair(upgradeStrategy=FULL)
    silence(harness)
    before = len(harness.kube.requests)
    await harness.run(120)
    assert len(harness.kube.requests) == before


async def test_a_pending_cluster_that_is_deleted_while_the_bus_is_silent_gets_nothing_any_more() -> (
    None
):
    harness = await halfway()
    blue, green = harness.active, harness.pending
    silence(harness)
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, green)
    await harness.run(LIMIT)
    assert harness.weights == {blue: 100}
