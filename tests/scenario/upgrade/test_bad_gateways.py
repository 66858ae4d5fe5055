"""Gateways and routes that do not work, and strategies that change: each is named once, and traffic stays where it was."""

import pytest

from common.api.opaque import Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from scenario.upgrade.world import GATEWAY_API, GREEN, Pair, a_running_pair
from support.builders.ray_service import NAME, NAMESPACE, a_strategy

FAST = a_strategy(surge=50, step=25, interval=2)
SLOW = a_strategy(surge=50, step=25, interval=20)


async def at_weight(weight: int, strategy: Json = FAST) -> Pair:
    world = await a_running_pair(upgradeStrategy=strategy)
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.until(lambda: world.view.weights[1] == weight, seconds=60)
    return world


def of_class(name: str) -> Json:
    return {**FAST, "clusterUpgradeOptions": {**FAST["clusterUpgradeOptions"], "gatewayClassName": name}}


async def until_green(world: Pair) -> None:
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=100)


async def test_a_class_that_nobody_serves_is_named() -> None:
    world = Pair()
    world.apply(upgradeStrategy=of_class("nope"))
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    await world.run(10)
    text = "Gateway default/demo-gateway is not Accepted yet (gatewayClassName nope: does a controller serve it?)"
    assert text in world.message("Ready")
    before = len(world.kube.writes())
    await world.run(60)
    assert len(world.kube.writes()) == before
    assert world.reasons().count("GatewayNotReady") == 1
    world.apply(config=GREEN, upgradeStrategy=of_class("nope"))
    await world.run(20)
    assert world.view.weights == (100, 0)
    assert text in world.message("UpgradeInProgress")
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await until_green(world)
    assert world.gateways[0]["spec"]["gatewayClassName"] == "fast"


async def test_a_service_whose_end_the_watch_has_not_told_gets_no_route_once_the_api_server_does_not_know_it() -> None:
    world = await a_running_pair()
    world.is_service_down = True
    world.kube.requests.clear()
    del world.kube.objects[RAY_SERVICE.kind, NAMESPACE, NAME]
    for _ in range(3):  # the garbage collector takes what stands below it
        if world.route is not None:
            await world.kube.delete(HTTP_ROUTE, NAMESPACE, f"{NAME}-httproute")
        await world.look()
    assert world.route is None
    assert len([each for each in world.kube.requests if (each.verb, each.kind) == ("create", "HTTPRoute")]) <= 1


@pytest.mark.parametrize("trouble", ["is_programmed", "accepts_routes"])
async def test_trouble_in_mid_upgrade_holds_it_and_says_so_once(trouble: str) -> None:
    world = await at_weight(25)
    setattr(world.gateway, trouble, False)
    world.gateway.forget()
    await world.run(20)
    held = world.view
    assert held.weights in {(75, 25), (50, 50)}
    before = len(world.kube.writes())
    await world.run(60)
    assert (world.view, len(world.kube.writes())) == (held, before)
    assert "waiting: " in world.message("UpgradeInProgress")
    reason = "GatewayNotReady" if trouble == "is_programmed" else "HTTPRouteNotReady"
    assert world.reasons().count(reason) == 1
    setattr(world.gateway, trouble, True)
    world.gateway.forget()
    await until_green(world)


async def test_definitions_that_go_in_mid_upgrade_and_come_back() -> None:
    world = await at_weight(50)
    blue, green = world.active, world.pending
    capacities = (world.capacities(blue), world.capacities(green))
    await world.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await world.kube.delete(GATEWAY, "default", "demo-gateway")
    world.unknown_kinds |= GATEWAY_API
    for kind in (HTTP_ROUTE, GATEWAY):
        for each in world.kube.all(kind):
            world.kube.finish_deletion(kind, "default", each["metadata"]["name"])
    requests = len(world.kube.requests)
    await world.run(60)
    assert len(world.kube.requests) - requests < 20
    assert (world.capacities(blue), world.capacities(green)) == capacities
    assert world.reasons().count("GatewayAPIMissing") == 1
    assert "does not exist (is the Gateway API installed?)" in world.message("UpgradeInProgress")
    world.unknown_kinds.clear()
    await world.until(lambda: bool(world.weights), seconds=40)
    assert world.weights == {blue: 50, green: 50}
    await until_green(world)


async def test_a_rollback_while_the_definitions_are_gone_waits_and_ends_when_they_are_back() -> None:
    world = await at_weight(50)
    blue = world.active
    await world.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await world.kube.delete(GATEWAY, "default", "demo-gateway")
    world.unknown_kinds |= GATEWAY_API
    for kind in (HTTP_ROUTE, GATEWAY):
        for each in world.kube.all(kind):
            world.kube.finish_deletion(kind, "default", each["metadata"]["name"])
    world.apply(upgradeStrategy=FAST)
    await world.run(20)
    assert world.active == blue
    world.unknown_kinds.clear()
    await world.until(lambda: world.is_settled() and world.weights == {blue: 100}, seconds=100)


async def test_options_that_change_in_mid_upgrade_hold_from_the_next_step() -> None:
    world = await at_weight(25, SLOW)
    world.apply(config=GREEN, upgradeStrategy=a_strategy(surge=50, step=50, interval=1))
    await until_green(world)


async def test_options_that_become_invalid_in_mid_upgrade_hold_it() -> None:
    world = await at_weight(25)
    world.apply(config=GREEN, upgradeStrategy=a_strategy(surge=5, step=25))
    await world.run(20)
    assert "stepSizePercent must be less than or equal to maxSurgePercent" in world.message("Ready")
    held = world.weights
    before = len(world.kube.writes())
    await world.run(30)
    assert (world.weights, len(world.kube.writes())) == (held, before)
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await until_green(world)
