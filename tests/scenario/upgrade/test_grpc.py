"""Applications that take gRPC calls; spec rayservice §9.6, acceptance 87, 88."""

import pytest

from common.api.opaque import Json
from common.kube.resources import GRPC_ROUTE, SERVICE
from support.builders.ray_service import a_strategy
from support.simulator.simulator import Simulator, a_config, a_pair, a_running_pair, weights_of

FAST = a_strategy(surge=50, step=25, interval=2)


def with_grpc(config: Json, *, port: int = 9000) -> Json:
    """Return the cluster with a port for gRPC calls."""
    head = config["headGroupSpec"]
    container = head["template"]["spec"]["containers"][0]
    ports = [
        {"name": "serve", "containerPort": 8000},
        {"name": "serve-grpc", "containerPort": port},
    ]
    spec = {"containers": [{**container, "ports": ports}]}
    return {**config, "headGroupSpec": {**head, "template": {"spec": spec}}}


BLUE = with_grpc(a_config())
GREEN = with_grpc(a_config("rayproject/ray:2.53.0"))


async def a_grpc_pair() -> Simulator:
    sim = await a_running_pair(config=BLUE, upgradeStrategy=FAST)
    await sim.until(lambda: sim.grpc_route is not None)
    await sim.run(2)
    return sim


def listeners(sim: Simulator) -> list[tuple[str, int]]:
    return [(each["name"], each["port"]) for each in sim.gateways[0]["spec"]["listeners"]]


@pytest.mark.acceptance("rayservice", 87)
async def test_87_grpc_calls_have_a_route_and_a_listener_of_their_own() -> None:
    sim = await a_grpc_pair()
    backend = {
        "name": f"{sim.active}-serve-svc",
        "namespace": "default",
        "port": 9000,
        "weight": 100,
    }
    parent = {"name": "demo-gateway", "namespace": "default", "sectionName": "grpc"}
    assert sim.grpc_route is not None
    assert sim.grpc_route["spec"] == {"parentRefs": [parent], "rules": [{"backendRefs": [backend]}]}
    kinds = [{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute"}]
    assert sim.gateways[0]["spec"]["listeners"] == [
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "grpc", "protocol": "HTTP", "port": 9000, "allowedRoutes": {"kinds": kinds}},
    ]
    service = sim.kube.objects[(SERVICE.kind, "default", f"{sim.active}-serve-svc")]
    assert service["spec"]["ports"] == [
        {"name": "serve", "port": 8000},
        {"name": "serve-grpc", "port": 9000, "appProtocol": "kubernetes.io/h2c"},
    ]
    assert sim.route is not None
    assert sim.route["spec"]["parentRefs"] == [{"name": "demo-gateway", "namespace": "default"}]


@pytest.mark.acceptance("rayservice", 87)
async def test_87_both_routes_carry_the_same_weights_at_every_step() -> None:
    sim = await a_grpc_pair()
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    seen: set[tuple[int, ...]] = set()
    for _ in range(400):
        await sim.run(0.25)
        assert sim.grpc_route is not None
        assert weights_of(sim.grpc_route) == sim.weights
        seen.add(tuple(sim.weights.values()))
        if sim.is_complete() and sim.active != blue:
            break
    assert {(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)} <= seen
    assert sim.active != blue


@pytest.mark.acceptance("rayservice", 87)
async def test_87_a_refused_grpc_route_holds_the_upgrade_and_is_named() -> None:
    sim = await a_grpc_pair()
    sim.gateway.refused_kinds.add(GRPC_ROUTE.kind)
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.run(30)
    assert sim.view.weights == (100, 0)
    text = "waiting: GRPCRoute default/demo-grpcroute is not Accepted (NoMatchingListenerHostname)"
    assert text in sim.message("UpgradeInProgress")
    assert sim.reasons().count("GRPCRouteNotReady") == 1
    sim.gateway.refused_kinds.clear()
    sim.gateway.forget()
    await sim.until(lambda: sim.weights.get(sim.pending) == 25, seconds=30)


@pytest.mark.acceptance("rayservice", 88)
async def test_88_without_the_kind_http_continues_and_one_event_reports_it() -> None:
    sim = a_pair()
    sim.unknown_kinds.add(GRPC_ROUTE.kind)
    sim.apply(config=BLUE, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    await sim.run(90)
    assert (listeners(sim), sim.grpc_route) == ([("http", 80)], None)
    assert sim.reasons().count("GRPCRouteUnsupported") == 1
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    assert listeners(sim) == [("http", 80)]


@pytest.mark.acceptance("rayservice", 88)
async def test_88_once_the_kind_is_known_calls_are_routed() -> None:
    sim = a_pair()
    sim.unknown_kinds.add(GRPC_ROUTE.kind)
    sim.apply(config=BLUE, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    sim.unknown_kinds.clear()
    await sim.until(lambda: sim.grpc_route is not None, seconds=60)
    await sim.run(1)
    assert listeners(sim) == [("http", 80), ("grpc", 9000)]


async def test_a_service_that_takes_no_more_grpc_calls_loses_route_and_listener() -> None:
    sim = await a_grpc_pair()
    blue = sim.active
    sim.apply(config=a_config("rayproject/ray:2.53.0"), upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=60)
    await sim.run(2)
    assert (listeners(sim), sim.grpc_route) == ([("http", 80)], None)


async def test_a_grpc_route_that_somebody_deletes_or_changes_comes_back() -> None:
    sim = await a_grpc_pair()
    await sim.kube.delete(GRPC_ROUTE, "default", "demo-grpcroute")
    await sim.run(0.5)
    assert sim.grpc_route is not None
    assert listeners(sim) == [("http", 80), ("grpc", 9000)]
    spec: Json = {
        **sim.grpc_route["spec"],
        "rules": [{"matches": [{"method": {"service": "a.B"}}]}],
    }
    sim.kube.put(GRPC_ROUTE, {**sim.grpc_route, "spec": spec})
    await sim.run(0.5)
    assert weights_of(sim.grpc_route) == {sim.active: 100}


async def test_suspend_takes_the_grpc_route_away() -> None:
    sim = await a_grpc_pair()
    sim.apply(config=BLUE, upgradeStrategy=FAST, suspend=True)
    await sim.run(10)
    assert (sim.condition("Suspended")[0], sim.grpc_route) == ("True", None)
    assert "DeletedGRPCRoute" in sim.reasons()


async def test_at_rest_nothing_is_written() -> None:
    sim = await a_grpc_pair()
    before = len(sim.kube.writes())
    await sim.run(120)
    assert len(sim.kube.writes()) == before
