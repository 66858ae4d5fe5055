"""Applications that take gRPC calls; spec rayservice §9.6, acceptance 87, 88."""

import pytest

from common.api.opaque import Json
from common.kube.resources import GRPC_ROUTE, SERVICE
from scenario.upgrade.harness import Pair, a_config, a_running_pair, weights_of
from support.builders.ray_service import a_strategy

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


async def a_grpc_pair() -> Pair:
    harness = await a_running_pair(config=BLUE, upgradeStrategy=FAST)
    await harness.until(lambda: harness.grpc_route is not None)
    await harness.run(2)
    return harness


def listeners(harness: Pair) -> list[tuple[str, int]]:
    return [(each["name"], each["port"]) for each in harness.gateways[0]["spec"]["listeners"]]


@pytest.mark.acceptance("rayservice", 87)
async def test_87_grpc_calls_have_a_route_and_a_listener_of_their_own() -> None:
    harness = await a_grpc_pair()
    backend = {
        "name": f"{harness.active}-serve-svc",
        "namespace": "default",
        "port": 9000,
        "weight": 100,
    }
    parent = {"name": "demo-gateway", "namespace": "default", "sectionName": "grpc"}
    assert harness.grpc_route is not None
    assert harness.grpc_route["spec"] == {
        "parentRefs": [parent],
        "rules": [{"backendRefs": [backend]}],
    }
    kinds = [{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute"}]
    assert harness.gateways[0]["spec"]["listeners"] == [
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "grpc", "protocol": "HTTP", "port": 9000, "allowedRoutes": {"kinds": kinds}},
    ]
    service = harness.kube.objects[(SERVICE.kind, "default", f"{harness.active}-serve-svc")]
    assert service["spec"]["ports"] == [
        {"name": "serve", "port": 8000},
        {"name": "serve-grpc", "port": 9000, "appProtocol": "kubernetes.io/h2c"},
    ]
    assert harness.route is not None
    assert harness.route["spec"]["parentRefs"] == [{"name": "demo-gateway", "namespace": "default"}]


@pytest.mark.acceptance("rayservice", 87)
async def test_87_both_routes_carry_the_same_weights_at_every_step() -> None:
    harness = await a_grpc_pair()
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    seen: set[tuple[int, ...]] = set()
    for _ in range(400):
        await harness.run(0.25)
        assert harness.grpc_route is not None
        assert weights_of(harness.grpc_route) == harness.weights
        seen.add(tuple(harness.weights.values()))
        if harness.is_complete() and harness.active != blue:
            break
    assert {(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)} <= seen
    assert harness.active != blue


@pytest.mark.acceptance("rayservice", 87)
async def test_87_a_refused_grpc_route_holds_the_upgrade_and_is_named() -> None:
    harness = await a_grpc_pair()
    harness.gateway.refused_kinds.add(GRPC_ROUTE.kind)
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.run(30)
    assert harness.view.weights == (100, 0)
    text = "waiting: GRPCRoute default/demo-grpcroute is not Accepted (NoMatchingListenerHostname)"
    assert text in harness.message("UpgradeInProgress")
    assert harness.reasons().count("GRPCRouteNotReady") == 1
    harness.gateway.refused_kinds.clear()
    harness.gateway.forget()
    await harness.until(lambda: harness.weights.get(harness.pending) == 25, seconds=30)


@pytest.mark.acceptance("rayservice", 88)
async def test_88_without_the_kind_http_continues_and_one_event_reports_it() -> None:
    harness = Pair()
    harness.unknown_kinds.add(GRPC_ROUTE.kind)
    harness.apply(config=BLUE, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    await harness.run(90)
    assert (listeners(harness), harness.grpc_route) == ([("http", 80)], None)
    assert harness.reasons().count("GRPCRouteUnsupported") == 1
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    assert listeners(harness) == [("http", 80)]


@pytest.mark.acceptance("rayservice", 88)
async def test_88_once_the_kind_is_known_calls_are_routed() -> None:
    harness = Pair()
    harness.unknown_kinds.add(GRPC_ROUTE.kind)
    harness.apply(config=BLUE, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    harness.unknown_kinds.clear()
    await harness.until(lambda: harness.grpc_route is not None, seconds=60)
    await harness.run(1)
    assert listeners(harness) == [("http", 80), ("grpc", 9000)]


async def test_a_service_that_takes_no_more_grpc_calls_loses_route_and_listener() -> None:
    harness = await a_grpc_pair()
    blue = harness.active
    harness.apply(config=a_config("rayproject/ray:2.53.0"), upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    await harness.run(2)
    assert (listeners(harness), harness.grpc_route) == ([("http", 80)], None)


async def test_a_grpc_route_that_somebody_deletes_or_changes_comes_back() -> None:
    harness = await a_grpc_pair()
    await harness.kube.delete(GRPC_ROUTE, "default", "demo-grpcroute")
    await harness.run(0.5)
    assert harness.grpc_route is not None
    assert listeners(harness) == [("http", 80), ("grpc", 9000)]
    spec: Json = {
        **harness.grpc_route["spec"],
        "rules": [{"matches": [{"method": {"service": "a.B"}}]}],
    }
    harness.kube.put(GRPC_ROUTE, {**harness.grpc_route, "spec": spec})
    await harness.run(0.5)
    assert weights_of(harness.grpc_route) == {harness.active: 100}


async def test_suspend_takes_the_grpc_route_away() -> None:
    harness = await a_grpc_pair()
    harness.apply(config=BLUE, upgradeStrategy=FAST, suspend=True)
    await harness.run(10)
    assert (harness.condition("Suspended")[0], harness.grpc_route) == ("True", None)
    assert "DeletedGRPCRoute" in harness.reasons()


async def test_at_rest_nothing_is_written() -> None:
    harness = await a_grpc_pair()
    before = len(harness.kube.writes())
    await harness.run(120)
    assert len(harness.kube.writes()) == before
