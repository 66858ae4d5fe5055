"""Applications that take gRPC calls; spec rayservice §9.6, acceptance 87, 88."""

import pytest

from common.api.opaque import Json
from common.kube.resources import GRPC_ROUTE, SERVICE
from scenario.upgrade.world import Pair, a_config, a_running_pair, weights_of
from support.builders.ray_service import a_strategy

FAST = a_strategy(surge=50, step=25, interval=2)


def with_grpc(config: Json, *, port: int = 9000) -> Json:
    """Return the cluster with a port for gRPC calls."""
    head = config["headGroupSpec"]
    container = head["template"]["spec"]["containers"][0]
    ports = [{"name": "serve", "containerPort": 8000}, {"name": "serve-grpc", "containerPort": port}]
    spec = {"containers": [{**container, "ports": ports}]}
    return {**config, "headGroupSpec": {**head, "template": {"spec": spec}}}


BLUE = with_grpc(a_config())
GREEN = with_grpc(a_config("rayproject/ray:2.53.0"))


async def a_grpc_pair() -> Pair:
    world = await a_running_pair(config=BLUE, upgradeStrategy=FAST)
    await world.until(lambda: world.grpc_route is not None)
    await world.run(2)
    return world


def listeners(world: Pair) -> list[tuple[str, int]]:
    return [(each["name"], each["port"]) for each in world.gateways[0]["spec"]["listeners"]]


@pytest.mark.acceptance("rayservice", 87)
async def test_87_grpc_calls_have_a_route_and_a_listener_of_their_own() -> None:
    world = await a_grpc_pair()
    backend = {"name": f"{world.active}-serve-svc", "namespace": "default", "port": 9000, "weight": 100}
    parent = {"name": "demo-gateway", "namespace": "default", "sectionName": "grpc"}
    assert world.grpc_route is not None
    assert world.grpc_route["spec"] == {"parentRefs": [parent], "rules": [{"backendRefs": [backend]}]}
    kinds = [{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute"}]
    assert world.gateways[0]["spec"]["listeners"] == [
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "grpc", "protocol": "HTTP", "port": 9000, "allowedRoutes": {"kinds": kinds}},
    ]
    service = world.kube.objects[(SERVICE.kind, "default", f"{world.active}-serve-svc")]
    assert service["spec"]["ports"] == [
        {"name": "serve", "port": 8000},
        {"name": "serve-grpc", "port": 9000, "appProtocol": "kubernetes.io/h2c"},
    ]
    assert world.route is not None
    assert world.route["spec"]["parentRefs"] == [{"name": "demo-gateway", "namespace": "default"}]


@pytest.mark.acceptance("rayservice", 87)
async def test_87_both_routes_carry_the_same_weights_at_every_step() -> None:
    world = await a_grpc_pair()
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST)
    seen: set[tuple[int, ...]] = set()
    for _ in range(400):
        await world.run(0.25)
        assert world.grpc_route is not None
        assert weights_of(world.grpc_route) == world.weights
        seen.add(tuple(world.weights.values()))
        if world.is_settled() and world.active != blue:
            break
    assert {(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)} <= seen
    assert world.active != blue


@pytest.mark.acceptance("rayservice", 87)
async def test_87_a_refused_grpc_route_holds_the_upgrade_and_is_named() -> None:
    world = await a_grpc_pair()
    world.gateway.refused_kinds.add(GRPC_ROUTE.kind)
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.run(30)
    assert world.view.weights == (100, 0)
    text = "waiting: GRPCRoute default/demo-grpcroute is not Accepted (NoMatchingListenerHostname)"
    assert text in world.message("UpgradeInProgress")
    assert world.reasons().count("GRPCRouteNotReady") == 1
    world.gateway.refused_kinds.clear()
    world.gateway.forget()
    await world.until(lambda: world.weights.get(world.pending) == 25, seconds=30)


@pytest.mark.acceptance("rayservice", 88)
async def test_88_without_the_kind_http_goes_on_and_one_event_tells() -> None:
    world = Pair()
    world.unknown_kinds.add(GRPC_ROUTE.kind)
    world.apply(config=BLUE, upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    await world.run(90)
    assert (listeners(world), world.grpc_route) == ([("http", 80)], None)
    assert world.reasons().count("GRPCRouteUnsupported") == 1
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    assert listeners(world) == [("http", 80)]


@pytest.mark.acceptance("rayservice", 88)
async def test_88_once_the_kind_is_known_calls_are_routed() -> None:
    world = Pair()
    world.unknown_kinds.add(GRPC_ROUTE.kind)
    world.apply(config=BLUE, upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    world.unknown_kinds.clear()
    await world.until(lambda: world.grpc_route is not None, seconds=60)
    await world.run(1)
    assert listeners(world) == [("http", 80), ("grpc", 9000)]


async def test_a_service_that_takes_no_more_grpc_calls_loses_route_and_listener() -> None:
    world = await a_grpc_pair()
    blue = world.active
    world.apply(config=a_config("rayproject/ray:2.53.0"), upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=60)
    await world.run(2)
    assert (listeners(world), world.grpc_route) == ([("http", 80)], None)


async def test_a_grpc_route_that_somebody_deletes_or_changes_comes_back() -> None:
    world = await a_grpc_pair()
    await world.kube.delete(GRPC_ROUTE, "default", "demo-grpcroute")
    await world.run(0.5)
    assert world.grpc_route is not None
    assert listeners(world) == [("http", 80), ("grpc", 9000)]
    spec: Json = {**world.grpc_route["spec"], "rules": [{"matches": [{"method": {"service": "a.B"}}]}]}
    world.kube.put(GRPC_ROUTE, {**world.grpc_route, "spec": spec})
    await world.run(0.5)
    assert weights_of(world.grpc_route) == {world.active: 100}


async def test_suspend_takes_the_grpc_route_away() -> None:
    world = await a_grpc_pair()
    world.apply(config=BLUE, upgradeStrategy=FAST, suspend=True)
    await world.run(10)
    assert (world.condition("Suspended")[0], world.grpc_route) == ("True", None)
    assert "DeletedGRPCRoute" in world.reasons()


async def test_at_rest_nothing_is_written() -> None:
    world = await a_grpc_pair()
    before = len(world.kube.writes())
    await world.run(120)
    assert len(world.kube.writes()) == before
