"""Config and routing do not depend on each other: what is refused of one holds nothing else up, and moves no traffic either."""

import copy
from collections.abc import Callable

import pytest

from common import errors
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, SERVICE
from scenario.upgrade.test_own_route import FAST, OWN, a_gateway, a_route, a_rule, mine, upgrade
from support.builders.ray_service import NAMESPACE, a_serve_config
from support.fakes.kube import Request
from support.simulator.simulator import BLUE, GREEN, Simulator, a_pair, a_running_pair, weights_of

REFUSED = "admission webhook denied the request: not in this namespace"
MOST = 16


def refuse(sim: Simulator, what: Callable[[Request], bool]) -> None:
    """Let a webhook refuse some writes."""

    def fault(request: Request) -> errors.RaybusError | None:
        is_write = request.verb in {"create", "patch", "update"}
        return errors.Forbidden(REFUSED) if is_write and what(request) else None

    sim.kube.faults.append(fault)


def refuse_kinds(sim: Simulator, *kinds: str) -> None:
    refuse(sim, lambda request: request.kind in kinds)


def hold_to_sixteen(sim: Simulator) -> list[str]:
    """Refuse routes as the Gateway API's definition does; return the refusals."""
    seen: list[str] = []

    def fault(request: Request) -> errors.RaybusError | None:
        body: Json = request.body if request.kind == HTTP_ROUTE.kind and request.body else {}
        rules: list[Json] = body.get("spec", {}).get("rules", [])
        if all(len(each.get("backendRefs", [])) <= MOST for each in rules):
            return None
        seen.append(str(request))
        return errors.Rejected(
            "spec.rules[0].backendRefs: Too many: 17: must have at most 16 items"
        )

    sim.kube.faults.append(fault)
    return seen


@pytest.mark.parametrize(
    "kinds", [(GATEWAY.kind,), (HTTP_ROUTE.kind,), (GATEWAY.kind, HTTP_ROUTE.kind)]
)
async def test_a_new_service_gets_its_config_while_its_routing_is_refused(
    kinds: tuple[str, ...],
) -> None:
    sim = a_pair()
    refuse_kinds(sim, *kinds)
    sim.apply(upgradeStrategy=FAST)
    await sim.until(sim.is_complete, seconds=30)
    assert [each["applications"] for each in sim.puts(sim.active)]
    assert any(reason.startswith("FailedToCreate") for reason in sim.reasons())


async def test_a_head_that_lost_its_applications_is_given_them_again_while_a_gateway_is_refused() -> (
    None
):
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    await sim.kube.delete(GATEWAY, NAMESPACE, "demo-gateway")
    refuse_kinds(sim, GATEWAY.kind)
    before = len(sim.puts(blue))
    sim.serve.head(f"{blue}-head-svc").restart()
    await sim.run(20)
    assert len(sim.puts(blue)) == before + 1


async def test_an_edit_of_the_config_arrives_while_the_route_cannot_be_written() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    held = sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, "demo-httproute"]
    refuse_kinds(sim, HTTP_ROUTE.kind)
    rule = {
        **held["spec"]["rules"][0],
        "matches": [{"path": {"type": "PathPrefix", "value": "/x"}}],
    }
    sim.kube.put(HTTP_ROUTE, {**held, "spec": {**held["spec"], "rules": [rule]}})
    await sim.run(3)
    before = len(sim.puts(blue))
    sim.apply(upgradeStrategy=FAST, serve=a_serve_config(message="v2"))
    await sim.run(10)
    assert len(sim.puts(blue)) == before + 1


@pytest.mark.parametrize("others", [15, 16])
async def test_a_rule_without_room_is_named_before_the_api_server_is_asked(others: int) -> None:
    background = [{"name": f"other{each}", "port": 80, "weight": 1} for each in range(others)]
    sim = a_pair()
    seen = hold_to_sixteen(sim)
    sim.kube.put(GATEWAY, a_gateway())
    sim.kube.put(HTTP_ROUTE, a_route(a_rule(backendRefs=background)))
    sim.apply(annotations=OWN, upgradeStrategy=FAST)
    await sim.until(sim.is_complete, seconds=20)
    await sim.run(8)
    blue = sim.active
    if others == MOST:
        assert (
            "has 16 other backends in spec.rules[0], and RayService needs room for 1"
            in sim.message("Ready")
        )
    else:
        assert weights_of(mine(sim))[blue] == 100
    upgrade(sim)
    await sim.run(30)
    green = sim.pending
    assert [each["target_capacity"] for each in sim.puts(green)], "it has its config"
    assert green not in weights_of(mine(sim))
    text = f"has {others} other backends in spec.rules[0], and RayService needs room for 2"
    assert text in sim.message("UpgradeInProgress")
    assert sim.reasons().count("HTTPRouteNotReady") <= 2
    assert seen == []
    held = copy.deepcopy(mine(sim))
    held["spec"]["rules"][0]["backendRefs"] = held["spec"]["rules"][0]["backendRefs"][-14:]
    sim.kube.put(HTTP_ROUTE, held)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)


async def test_no_traffic_moves_to_a_cluster_without_its_service() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    refuse(
        sim,
        lambda each: (
            each.kind == SERVICE.kind and each.name != f"{blue}-serve-svc" and _is_serve(each)
        ),
    )
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.run(40)
    assert sim.weights[blue] == 100
    assert sim.puts(sim.pending)


async def test_a_route_of_an_earlier_strategy_stays_where_it_is_while_the_service_of_the_new_cluster_is_refused() -> (
    None
):
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    refuse(
        sim, lambda each: each.kind == SERVICE.kind and each.verb == "create" and _is_serve(each)
    )
    new = {"type": "NewCluster"}
    sim.apply(upgradeStrategy=new)
    await sim.run(3)
    sim.apply(config=GREEN, upgradeStrategy=new)
    await sim.run(40)
    assert sim.weights == {blue: 100}


async def test_traffic_rolls_back_although_the_service_of_the_pending_cluster_cannot_be_created_again() -> (
    None
):
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: sim.view.weights == (50, 50), seconds=60)
    await sim.kube.delete(SERVICE, NAMESPACE, f"{sim.pending}-serve-svc")
    refuse(sim, lambda each: each.kind == SERVICE.kind and each.verb == "create")
    sim.apply(config=BLUE, upgradeStrategy=FAST)
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=60)


def _is_serve(request: Request) -> bool:
    body: Body = request.body or {}
    return str(body.get("metadata", {}).get("name", "")).endswith("-serve-svc")
