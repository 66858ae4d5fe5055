"""Gateways and routes that do not work, and strategies that change: each is named once, and traffic stays where it was."""

import pytest

from common.api.opaque import Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from support.builders.ray_service import NAME, NAMESPACE, a_strategy
from support.simulator.services import GATEWAY_API
from support.simulator.simulator import GREEN, Simulator, a_pair, a_running_pair

FAST = a_strategy(surge=50, step=25, interval=2)
SLOW = a_strategy(surge=50, step=25, interval=20)


async def at_weight(weight: int, strategy: Json = FAST) -> Simulator:
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights[1] == weight, seconds=60)
    return sim


def of_class(name: str) -> Json:
    return {
        **FAST,
        "clusterUpgradeOptions": {**FAST["clusterUpgradeOptions"], "gatewayClassName": name},
    }


async def until_green(sim: Simulator) -> None:
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)


async def test_a_class_that_nobody_serves_is_named() -> None:
    sim = a_pair()
    sim.apply(upgradeStrategy=of_class("nope"))
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    await sim.run(10)
    text = "Gateway default/demo-gateway is not Accepted yet (gatewayClassName nope: does a controller serve it?)"
    assert text in sim.message("Ready")
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
    assert sim.reasons().count("GatewayNotReady") == 1
    sim.apply(config=GREEN, upgradeStrategy=of_class("nope"))
    await sim.run(20)
    assert sim.view.weights == (100, 0)
    assert text in sim.message("UpgradeInProgress")
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await until_green(sim)
    assert sim.gateways[0]["spec"]["gatewayClassName"] == "fast"


async def test_a_deleted_service_gets_no_route_before_the_watch_reports_its_deletion() -> None:
    sim = await a_running_pair()
    sim.services["service"].is_down = True
    sim.kube.requests.clear()
    del sim.kube.objects[RAY_SERVICE.kind, NAMESPACE, NAME]
    for _ in range(3):  # the garbage collector takes what stands below it
        if sim.route is not None:
            await sim.kube.delete(HTTP_ROUTE, NAMESPACE, f"{NAME}-httproute")
        await sim.reconcile()
    assert sim.route is None
    assert (
        len(
            [
                each
                for each in sim.kube.requests
                if (each.verb, each.kind) == ("create", "HTTPRoute")
            ]
        )
        <= 1
    )


@pytest.mark.parametrize("trouble", ["is_programmed", "accepts_routes"])
async def test_trouble_in_mid_upgrade_holds_it_and_is_reported_once(trouble: str) -> None:
    sim = await at_weight(25)
    setattr(sim.gateway, trouble, False)
    sim.gateway.forget()
    await sim.run(20)
    held = sim.view
    assert held.weights in {(75, 25), (50, 50)}
    before = len(sim.kube.writes())
    await sim.run(60)
    assert (sim.view, len(sim.kube.writes())) == (held, before)
    assert "waiting: " in sim.message("UpgradeInProgress")
    reason = "GatewayNotReady" if trouble == "is_programmed" else "HTTPRouteNotReady"
    assert sim.reasons().count(reason) == 1
    setattr(sim.gateway, trouble, True)
    sim.gateway.forget()
    await until_green(sim)


@pytest.mark.parametrize("states_generations", [True, False])
async def test_the_report_of_a_controller_that_left_the_gateway_holds_no_upgrade(
    *, states_generations: bool
) -> None:
    sim = await at_weight(25)
    sim.gateway.name = "new.example/gw"
    sim.gateway.states_generations = states_generations
    sim.gateway.forget()
    await until_green(sim)
    names = [each["controllerName"] for each in route_reports(sim)]
    assert names == ["example.org/gw", "new.example/gw"]
    await sim.until(lambda: sim.clusters == [sim.active], seconds=90)


async def test_a_controller_that_states_no_generation_holds_no_upgrade() -> None:
    sim = a_pair()
    sim.gateway.states_generations = False
    sim.apply(upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending), seconds=20)
    await until_green(sim)
    await sim.until(lambda: sim.clusters == [sim.active], seconds=90)


async def test_a_first_route_is_late_only_after_its_controller_had_time() -> None:
    sim = a_pair()
    sim.gateway.states_generations = False
    sim.apply(upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    await sim.run(2)
    before = len(sim.kube.writes())
    await sim.run(30)
    assert sim.kube.writes()[before:] == []


async def test_a_controller_that_does_not_take_the_route_in_is_named_within_a_minute() -> None:
    sim = await at_weight(25)
    sim.gateway.is_asleep = True
    await sim.run(60)
    generation = sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"]["metadata"][
        "generation"
    ]
    text = (
        f"waiting: HTTPRoute {NAMESPACE}/{NAME}-httproute is not Accepted yet as it is now: controller "
        f"example.org/gw reports generation {generation - 1} of {generation} "
        f"for Gateway {NAMESPACE}/{NAME}-gateway"
    )
    assert text in sim.message("UpgradeInProgress")
    assert sim.reasons().count("HTTPRouteNotReady") == 1
    sim.gateway.is_asleep = False
    await until_green(sim)


def route_reports(sim: Simulator) -> list[Json]:
    route = sim.route
    return [] if route is None else route["status"]["parents"]


async def test_definitions_that_go_in_mid_upgrade_and_come_back() -> None:
    sim = await at_weight(50)
    blue, green = sim.active, sim.pending
    capacities = (sim.capacities(blue), sim.capacities(green))
    await sim.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await sim.kube.delete(GATEWAY, "default", "demo-gateway")
    sim.unknown_kinds |= GATEWAY_API
    for kind in (HTTP_ROUTE, GATEWAY):
        for each in sim.kube.all(kind):
            sim.kube.finish_deletion(kind, "default", each["metadata"]["name"])
    requests = len(sim.kube.requests)
    await sim.run(60)
    assert len(sim.kube.requests) - requests < 20
    assert (sim.capacities(blue), sim.capacities(green)) == capacities
    assert sim.reasons().count("GatewayAPIMissing") == 1
    assert "does not exist (is the Gateway API installed?)" in sim.message("UpgradeInProgress")
    sim.unknown_kinds.clear()
    await sim.until(lambda: bool(sim.weights), seconds=40)
    assert sim.weights == {blue: 50, green: 50}
    await until_green(sim)


async def test_a_rollback_while_the_definitions_are_gone_waits_and_ends_when_they_are_back() -> (
    None
):
    sim = await at_weight(50)
    blue = sim.active
    await sim.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await sim.kube.delete(GATEWAY, "default", "demo-gateway")
    sim.unknown_kinds |= GATEWAY_API
    for kind in (HTTP_ROUTE, GATEWAY):
        for each in sim.kube.all(kind):
            sim.kube.finish_deletion(kind, "default", each["metadata"]["name"])
    sim.apply(upgradeStrategy=FAST)
    await sim.run(20)
    assert sim.active == blue
    sim.unknown_kinds.clear()
    await sim.until(lambda: sim.is_complete() and sim.weights == {blue: 100}, seconds=100)


async def test_options_that_change_in_mid_upgrade_hold_from_the_next_step() -> None:
    sim = await at_weight(25, SLOW)
    sim.apply(config=GREEN, upgradeStrategy=a_strategy(surge=50, step=50, interval=1))
    await until_green(sim)


async def test_options_that_become_invalid_in_mid_upgrade_hold_it() -> None:
    sim = await at_weight(25)
    sim.apply(config=GREEN, upgradeStrategy=a_strategy(surge=5, step=25))
    await sim.run(20)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in sim.message("Ready")
    held = sim.weights
    before = len(sim.kube.writes())
    await sim.run(30)
    assert (sim.weights, len(sim.kube.writes())) == (held, before)
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await until_green(sim)
