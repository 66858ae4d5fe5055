"""Gateways and routes that do not work, and strategies that change: each is named once, and traffic stays where it was."""

import pytest

from common.api.opaque import Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from scenario.upgrade.harness import GATEWAY_API, GREEN, Pair, a_running_pair
from support.builders.ray_service import NAME, NAMESPACE, a_strategy

FAST = a_strategy(surge=50, step=25, interval=2)
SLOW = a_strategy(surge=50, step=25, interval=20)


async def at_weight(weight: int, strategy: Json = FAST) -> Pair:
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights[1] == weight, seconds=60)
    return harness


def of_class(name: str) -> Json:
    return {
        **FAST,
        "clusterUpgradeOptions": {**FAST["clusterUpgradeOptions"], "gatewayClassName": name},
    }


async def until_green(harness: Pair) -> None:
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=100)


async def test_a_class_that_nobody_serves_is_named() -> None:
    harness = Pair()
    harness.apply(upgradeStrategy=of_class("nope"))
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    await harness.run(10)
    text = "Gateway default/demo-gateway is not Accepted yet (gatewayClassName nope: does a controller serve it?)"
    assert text in harness.message("Ready")
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before
    assert harness.reasons().count("GatewayNotReady") == 1
    harness.apply(config=GREEN, upgradeStrategy=of_class("nope"))
    await harness.run(20)
    assert harness.view.weights == (100, 0)
    assert text in harness.message("UpgradeInProgress")
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await until_green(harness)
    assert harness.gateways[0]["spec"]["gatewayClassName"] == "fast"


async def test_a_deleted_service_gets_no_route_before_the_watch_reports_its_deletion() -> None:
    harness = await a_running_pair()
    harness.is_service_down = True
    harness.kube.requests.clear()
    del harness.kube.objects[RAY_SERVICE.kind, NAMESPACE, NAME]
    for _ in range(3):  # the garbage collector takes what stands below it
        if harness.route is not None:
            await harness.kube.delete(HTTP_ROUTE, NAMESPACE, f"{NAME}-httproute")
        await harness.reconcile()
    assert harness.route is None
    assert (
        len(
            [
                each
                for each in harness.kube.requests
                if (each.verb, each.kind) == ("create", "HTTPRoute")
            ]
        )
        <= 1
    )


@pytest.mark.parametrize("trouble", ["is_programmed", "accepts_routes"])
async def test_trouble_in_mid_upgrade_holds_it_and_is_reported_once(trouble: str) -> None:
    harness = await at_weight(25)
    setattr(harness.gateway, trouble, False)
    harness.gateway.forget()
    await harness.run(20)
    held = harness.view
    assert held.weights in {(75, 25), (50, 50)}
    before = len(harness.kube.writes())
    await harness.run(60)
    assert (harness.view, len(harness.kube.writes())) == (held, before)
    assert "waiting: " in harness.message("UpgradeInProgress")
    reason = "GatewayNotReady" if trouble == "is_programmed" else "HTTPRouteNotReady"
    assert harness.reasons().count(reason) == 1
    setattr(harness.gateway, trouble, True)
    harness.gateway.forget()
    await until_green(harness)


@pytest.mark.parametrize("states_generations", [True, False])
async def test_the_report_of_a_controller_that_left_the_gateway_holds_no_upgrade(
    *, states_generations: bool
) -> None:
    harness = await at_weight(25)
    harness.gateway.name = "new.example/gw"
    harness.gateway.states_generations = states_generations
    harness.gateway.forget()
    await until_green(harness)
    names = [each["controllerName"] for each in route_reports(harness)]
    assert names == ["example.org/gw", "new.example/gw"]
    await harness.until(lambda: harness.clusters == [harness.active], seconds=90)


async def test_a_controller_that_states_no_generation_holds_no_upgrade() -> None:
    harness = Pair()
    harness.gateway.states_generations = False
    harness.apply(upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending), seconds=20)
    await until_green(harness)
    await harness.until(lambda: harness.clusters == [harness.active], seconds=90)


async def test_a_first_route_is_late_only_after_its_controller_had_time() -> None:
    harness = Pair()
    harness.gateway.states_generations = False
    harness.apply(upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    await harness.run(2)
    before = len(harness.kube.writes())
    await harness.run(30)
    assert harness.kube.writes()[before:] == []


async def test_a_controller_that_does_not_take_the_route_in_is_named_within_a_minute() -> None:
    harness = await at_weight(25)
    harness.gateway.is_asleep = True
    await harness.run(60)
    generation = harness.kube.objects[HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"]["metadata"][
        "generation"
    ]
    text = (
        f"waiting: HTTPRoute {NAMESPACE}/{NAME}-httproute is not Accepted yet as it is now: controller "
        f"example.org/gw reports generation {generation - 1} of {generation} "
        f"for Gateway {NAMESPACE}/{NAME}-gateway"
    )
    assert text in harness.message("UpgradeInProgress")
    assert harness.reasons().count("HTTPRouteNotReady") == 1
    harness.gateway.is_asleep = False
    await until_green(harness)


def route_reports(harness: Pair) -> list[Json]:
    route = harness.route
    return [] if route is None else route["status"]["parents"]


async def test_definitions_that_go_in_mid_upgrade_and_come_back() -> None:
    harness = await at_weight(50)
    blue, green = harness.active, harness.pending
    capacities = (harness.capacities(blue), harness.capacities(green))
    await harness.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await harness.kube.delete(GATEWAY, "default", "demo-gateway")
    harness.unknown_kinds |= GATEWAY_API
    for kind in (HTTP_ROUTE, GATEWAY):
        for each in harness.kube.all(kind):
            harness.kube.finish_deletion(kind, "default", each["metadata"]["name"])
    requests = len(harness.kube.requests)
    await harness.run(60)
    assert len(harness.kube.requests) - requests < 20
    assert (harness.capacities(blue), harness.capacities(green)) == capacities
    assert harness.reasons().count("GatewayAPIMissing") == 1
    assert "does not exist (is the Gateway API installed?)" in harness.message("UpgradeInProgress")
    harness.unknown_kinds.clear()
    await harness.until(lambda: bool(harness.weights), seconds=40)
    assert harness.weights == {blue: 50, green: 50}
    await until_green(harness)


async def test_a_rollback_while_the_definitions_are_gone_waits_and_ends_when_they_are_back() -> (
    None
):
    harness = await at_weight(50)
    blue = harness.active
    await harness.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await harness.kube.delete(GATEWAY, "default", "demo-gateway")
    harness.unknown_kinds |= GATEWAY_API
    for kind in (HTTP_ROUTE, GATEWAY):
        for each in harness.kube.all(kind):
            harness.kube.finish_deletion(kind, "default", each["metadata"]["name"])
    harness.apply(upgradeStrategy=FAST)
    await harness.run(20)
    assert harness.active == blue
    harness.unknown_kinds.clear()
    await harness.until(
        lambda: harness.is_complete() and harness.weights == {blue: 100}, seconds=100
    )


async def test_options_that_change_in_mid_upgrade_hold_from_the_next_step() -> None:
    harness = await at_weight(25, SLOW)
    harness.apply(config=GREEN, upgradeStrategy=a_strategy(surge=50, step=50, interval=1))
    await until_green(harness)


async def test_options_that_become_invalid_in_mid_upgrade_hold_it() -> None:
    harness = await at_weight(25)
    harness.apply(config=GREEN, upgradeStrategy=a_strategy(surge=5, step=25))
    await harness.run(20)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in harness.message(
        "Ready"
    )
    held = harness.weights
    before = len(harness.kube.writes())
    await harness.run(30)
    assert (harness.weights, len(harness.kube.writes())) == (held, before)
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await until_green(harness)
