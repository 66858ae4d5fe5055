"""Config and routing do not depend on each other: what is refused of one holds nothing else up, and moves no traffic either."""

import copy
from collections.abc import Callable

import pytest

from common import errors
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, SERVICE
from scenario.upgrade.test_own_route import FAST, OWN, a_gateway, a_route, a_rule, mine, upgrade
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair, weights_of
from support.builders.ray_service import NAMESPACE, a_serve_config
from support.fakes.kube import Request

REFUSED = "admission webhook denied the request: not in this namespace"
MOST = 16


def refuse(world: Pair, what: Callable[[Request], bool]) -> None:
    """Let a webhook refuse some writes."""

    def fault(request: Request) -> errors.RaybusError | None:
        is_write = request.verb in {"create", "patch", "update"}
        return errors.Forbidden(REFUSED) if is_write and what(request) else None

    world.kube.faults.append(fault)


def refuse_kinds(world: Pair, *kinds: str) -> None:
    refuse(world, lambda request: request.kind in kinds)


def hold_to_sixteen(world: Pair) -> list[str]:
    """Refuse routes as the Gateway API's definition does; return the refusals."""
    seen: list[str] = []

    def fault(request: Request) -> errors.RaybusError | None:
        body: Json = request.body if request.kind == HTTP_ROUTE.kind and request.body else {}
        rules: list[Json] = body.get("spec", {}).get("rules", [])
        if all(len(each.get("backendRefs", [])) <= MOST for each in rules):
            return None
        seen.append(str(request))
        return errors.Rejected("spec.rules[0].backendRefs: Too many: 17: must have at most 16 items")

    world.kube.faults.append(fault)
    return seen


@pytest.mark.parametrize("kinds", [(GATEWAY.kind,), (HTTP_ROUTE.kind,), (GATEWAY.kind, HTTP_ROUTE.kind)])
async def test_a_new_service_gets_its_config_while_its_routing_is_refused(kinds: tuple[str, ...]) -> None:
    world = Pair()
    refuse_kinds(world, *kinds)
    world.apply(upgradeStrategy=FAST)
    await world.until(world.is_settled, seconds=30)
    assert [each["applications"] for each in world.puts(world.active)]
    assert any(reason.startswith("FailedToCreate") for reason in world.reasons())


async def test_a_head_that_lost_its_applications_is_given_them_again_while_a_gateway_is_refused() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    await world.kube.delete(GATEWAY, NAMESPACE, "demo-gateway")
    refuse_kinds(world, GATEWAY.kind)
    before = len(world.puts(blue))
    world.serve.head(f"{blue}-head-svc").restart()
    await world.run(20)
    assert len(world.puts(blue)) == before + 1


async def test_an_edit_of_the_config_arrives_while_the_route_cannot_be_written() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    held = world.kube.objects[HTTP_ROUTE.kind, NAMESPACE, "demo-httproute"]
    refuse_kinds(world, HTTP_ROUTE.kind)
    rule = {**held["spec"]["rules"][0], "matches": [{"path": {"type": "PathPrefix", "value": "/x"}}]}
    world.kube.put(HTTP_ROUTE, {**held, "spec": {**held["spec"], "rules": [rule]}})
    await world.run(3)
    before = len(world.puts(blue))
    world.apply(upgradeStrategy=FAST, serve=a_serve_config(message="v2"))
    await world.run(10)
    assert len(world.puts(blue)) == before + 1


@pytest.mark.parametrize("others", [15, 16])
async def test_a_rule_without_room_is_named_before_the_api_server_is_asked(others: int) -> None:
    crowd = [{"name": f"other{each}", "port": 80, "weight": 1} for each in range(others)]
    world = Pair()
    seen = hold_to_sixteen(world)
    world.kube.put(GATEWAY, a_gateway())
    world.kube.put(HTTP_ROUTE, a_route(a_rule(backendRefs=crowd)))
    world.apply(annotations=OWN, upgradeStrategy=FAST)
    await world.until(world.is_settled, seconds=20)
    await world.run(8)
    blue = world.active
    if others == MOST:
        assert "has 16 other backends in spec.rules[0], and RayService needs room for 1" in world.message("Ready")
    else:
        assert weights_of(mine(world))[blue] == 100
    upgrade(world)
    await world.run(30)
    green = world.pending
    assert [each["target_capacity"] for each in world.puts(green)], "it has its config"
    assert green not in weights_of(mine(world))
    text = f"has {others} other backends in spec.rules[0], and RayService needs room for 2"
    assert text in world.message("UpgradeInProgress")
    assert world.reasons().count("HTTPRouteNotReady") <= 2
    assert seen == []
    held = copy.deepcopy(mine(world))
    held["spec"]["rules"][0]["backendRefs"] = held["spec"]["rules"][0]["backendRefs"][-14:]
    world.kube.put(HTTP_ROUTE, held)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=100)


async def test_no_traffic_moves_to_a_cluster_whose_service_is_refused() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    refuse(world, lambda each: each.kind == SERVICE.kind and each.name != f"{blue}-serve-svc" and _is_serve(each))
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.run(40)
    assert world.weights[blue] == 100
    assert world.puts(world.pending)


async def test_a_route_of_an_earlier_strategy_stays_where_it_is_while_the_service_of_the_new_cluster_is_refused() -> (
    None
):
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    refuse(world, lambda each: each.kind == SERVICE.kind and each.verb == "create" and _is_serve(each))
    new = {"type": "NewCluster"}
    world.apply(upgradeStrategy=new)
    await world.run(3)
    world.apply(config=GREEN, upgradeStrategy=new)
    await world.run(40)
    assert world.weights == {blue: 100}


async def test_traffic_goes_back_although_the_service_of_the_pending_cluster_cannot_be_made_again() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.until(lambda: world.view.weights == (50, 50), seconds=60)
    await world.kube.delete(SERVICE, NAMESPACE, f"{world.pending}-serve-svc")
    refuse(world, lambda each: each.kind == SERVICE.kind and each.verb == "create")
    world.apply(config=BLUE, upgradeStrategy=FAST)
    await world.until(lambda: world.weights.get(blue) == 100, seconds=60)


def _is_serve(request: Request) -> bool:
    body: Body = request.body or {}
    return str(body.get("metadata", {}).get("name", "")).endswith("-serve-svc")
