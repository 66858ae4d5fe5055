"""The owner of a route: a foreign one is neither written nor read, and is named with the remedy."""

import copy
from contextlib import suppress
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, RAY_SERVICE, SERVICE
from common.upgrade.traffic_record import ANNOTATION
from scenario.upgrade.test_grpc import BLUE as GRPC_BLUE
from scenario.upgrade.test_own_route import (
    FAST,
    OWN,
    a_gateway,
    a_route,
    a_rule,
    mine,
    serving_pair,
    upgrade,
)
from support.builders.ray_service import NAMESPACE
from support.simulator.simulator import BLUE, GREEN, Simulator, a_pair, a_running_pair, weights_of

SIBLING: Json = {"name": "demo-small-serve-svc", "port": 8000, "weight": 30}
"""Weight that another RayService, `demo-small`, has in the same rule."""
OPT_IN = labels.ROUTE_PERMITS


def held_by(sim: Simulator, kind: str, name: str) -> Body:
    return sim.kube.objects[kind, NAMESPACE, name]


def owned_by(name: str, uid: str) -> list[Json]:
    return [
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "name": name,
            "uid": uid,
            "controller": True,
        }
    ]


@pytest.mark.parametrize("what", ["an upgrade", "the end of the service", "a suspend"])
async def test_the_backend_of_another_service_with_our_name_as_its_prefix_stays(what: str) -> None:
    sim = await serving_pair(
        a_route(a_rule(backendRefs=[SIBLING, {"name": "demo-serve-svc", "port": 8000}]))
    )
    blue = sim.active
    assert weights_of(mine(sim)) == {"demo-small": 30, blue: 100}
    if what == "an upgrade":
        upgrade(sim)
        await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
        await sim.run(2)
        assert weights_of(mine(sim)) == {"demo-small": 30, sim.active: 100}
        return
    if what == "a suspend":
        sim.apply(annotations=OWN, upgradeStrategy=FAST, suspend=True)
    else:
        await sim.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await sim.run(15)
    assert mine(sim)["spec"]["rules"][0]["backendRefs"] == [SIBLING]


@pytest.mark.parametrize("what", ["an upgrade", "the end of the service"])
async def test_backends_of_others_with_the_name_of_ours_stay(what: str) -> None:
    east: Json = {"name": "demo-serve-svc", "namespace": "east", "port": 8000, "weight": 10}
    imported: Json = {
        "group": "multicluster.x-k8s.io",
        "kind": "ServiceImport",
        "name": "demo-serve-svc",
        "port": 8000,
        "weight": 10,
    }
    ours: Json = {"name": "demo-serve-svc", "port": 8000}
    sim = await serving_pair(a_route(a_rule(backendRefs=[east, imported, ours])))
    if what == "an upgrade":
        blue = sim.active
        upgrade(sim)
        await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
        await sim.run(2)
        backends = mine(sim)["spec"]["rules"][0]["backendRefs"]
        assert backends[:2] == [east, imported]
        assert [(each["name"], each["weight"]) for each in backends[2:]] == [
            (f"{sim.active}-serve-svc", 100)
        ]
        return
    await sim.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await sim.run(15)
    assert mine(sim)["spec"]["rules"][0]["backendRefs"] == [east, imported]


async def test_backends_of_clusters_that_are_gone_are_known_by_the_record() -> None:
    sim = await serving_pair(a_route(a_rule(backendRefs=[SIBLING])))
    upgrade(sim)
    await sim.until(lambda: sim.view.weights[1] == 50, seconds=60)
    await sim.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await sim.run(15)
    assert sim.clusters == []
    assert mine(sim)["spec"]["rules"][0]["backendRefs"] == [SIBLING]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_the_route_that_raybus_made_for_another_service_is_refused(
    *, is_sharded: bool
) -> None:
    sim = a_pair()
    sim.bus.is_sharded = is_sharded
    sim.kube.put(GATEWAY, a_gateway())
    route = a_route(
        a_rule(backendRefs=[{"name": "shop-abcde-serve-svc", "port": 8000, "weight": 100}])
    )
    route["metadata"] = {
        "name": "shop-httproute",
        "annotations": {
            ANNOTATION: '{"clusters":{"shop-abcde":{"capacity":100,"weight":100}}}',
            OPT_IN: "demo",
        },
        "ownerReferences": owned_by("shop", "shop-uid"),
    }
    sim.kube.put(HTTP_ROUTE, copy.deepcopy(route))
    sim.apply(annotations={labels.HTTP_ROUTE: "shop-httproute"}, upgradeStrategy=FAST)
    await sim.until(sim.is_complete, seconds=20)
    await sim.run(10)
    after = held_by(sim, HTTP_ROUTE.kind, "shop-httproute")
    assert (after["spec"], after["metadata"]["annotations"]) == (
        route["spec"],
        route["metadata"]["annotations"],
    )
    assert "HTTPRoute default/shop-httproute is owned by RayService shop" in sim.message("Ready")
    assert sim.reasons().count("HTTPRouteNotPermitted") == 1
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before


@pytest.mark.parametrize(
    ("value", "command"),
    [
        (None, "kubectl annotate httproute mine -n default raybus.io/rayservice=demo"),
        ("", "kubectl annotate httproute mine -n default raybus.io/rayservice=demo --overwrite"),
        (
            "demo2, shop",
            "kubectl annotate httproute mine -n default raybus.io/rayservice=demo2,shop,demo --overwrite",
        ),
    ],
)
@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_route_without_the_consent_of_its_owner_is_left_alone_and_the_command_is_reported(
    value: str | None, command: str, *, is_sharded: bool
) -> None:
    route = a_route(a_rule(backendRefs=[{"name": "shop", "port": 80, "weight": 1}]))
    route["metadata"]["annotations"].pop(OPT_IN, None)
    if value is not None:
        route["metadata"]["annotations"][OPT_IN] = value
    sim = await serving_pair(copy.deepcopy(route), is_sharded=is_sharded)
    await sim.run(8)
    after = mine(sim)
    assert (after["spec"], after["metadata"]["annotations"]) == (
        route["spec"],
        route["metadata"]["annotations"],
    )
    assert after["metadata"]["labels"] == {"team": "a"}
    assert command in sim.message("Ready")
    assert sim.reasons().count("HTTPRouteNotPermitted") == 1
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
    meta = {
        **after["metadata"],
        "annotations": {**after["metadata"]["annotations"], OPT_IN: "shop,demo"},
    }
    sim.kube.put(HTTP_ROUTE, {**after, "metadata": meta})
    await sim.until(lambda: weights_of(mine(sim)).get(sim.active) == 100, seconds=10)


async def test_an_owner_that_revokes_the_permission_keeps_the_route_as_it_is() -> None:
    sim = await serving_pair(a_route())
    blue = sim.active
    held = copy.deepcopy(mine(sim))
    del held["metadata"]["annotations"][OPT_IN]
    sim.kube.put(HTTP_ROUTE, held)
    upgrade(sim)
    await sim.run(40)
    assert weights_of(mine(sim)) == {blue: 100}
    assert sim.view.weights in {(100, 0), (100, None)}
    assert "kubectl annotate httproute mine" in sim.message("UpgradeInProgress")
    await sim.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await sim.run(15)
    assert weights_of(mine(sim)) == {}, "what is ours is taken out all the same"


@pytest.mark.parametrize(
    ("kind", "name"), [(HTTP_ROUTE, "demo-httproute"), (GATEWAY, "demo-gateway")]
)
@pytest.mark.parametrize("is_sharded", [True, False])
async def test_an_object_of_somebody_else_under_the_name_of_ours_is_left_alone(
    kind: Any, name: str, *, is_sharded: bool
) -> None:
    sim = a_pair()
    sim.bus.is_sharded = is_sharded
    theirs: Body = a_route(a_rule("/shop"))
    if kind is GATEWAY:
        theirs = {
            "metadata": {},
            "spec": {"gatewayClassName": "slow", "listeners": [{"name": "web", "port": 81}]},
        }
    theirs["metadata"] = {"name": name}
    sim.kube.put(kind, copy.deepcopy(theirs))
    sim.apply(upgradeStrategy=FAST)
    await sim.until(sim.is_complete, seconds=20)
    await sim.run(10)
    assert held_by(sim, kind.kind, name)["spec"] == theirs["spec"]
    assert f"{kind.kind} default/{name} exists and is not owned by RayService demo" in sim.message(
        "Ready"
    )
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
    await expect_suspended(sim, f"{kind.kind} default/{name}")
    assert held_by(sim, kind.kind, name)["spec"] == theirs["spec"]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_suspend_does_not_wait_for_a_grpc_route_of_somebody_else(
    *, is_sharded: bool
) -> None:
    sim = a_pair()
    sim.bus.is_sharded = is_sharded
    theirs: Body = {"metadata": {"name": "demo-grpcroute"}, "spec": {"rules": []}}
    sim.kube.put(GRPC_ROUTE, copy.deepcopy(theirs))
    sim.apply(upgradeStrategy=FAST)
    await sim.until(sim.is_complete, seconds=20)
    await expect_suspended(sim, None if is_sharded else "GRPCRoute default/demo-grpcroute")
    assert held_by(sim, GRPC_ROUTE.kind, "demo-grpcroute")["spec"] == theirs["spec"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (GATEWAY, "demo-gateway"),
        (HTTP_ROUTE, "demo-httproute"),
        (GRPC_ROUTE, "demo-grpcroute"),
        (SERVICE, "demo-head-svc"),
        (SERVICE, "demo-serve-svc"),
    ],
)
@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_name_is_ours_once_its_other_owner_has_deleted_the_object(
    kind: Any, name: str, *, is_sharded: bool
) -> None:
    sim = a_pair()
    sim.bus.is_sharded = is_sharded
    specs: dict[str, Json] = {
        "Gateway": {"gatewayClassName": "slow"},
        "HTTPRoute": a_route(a_rule("/shop"))["spec"],
        "Service": {"selector": {"app": "elsewhere"}, "ports": []},
    }
    owners = [{"kind": "Job", "name": "other", "uid": "u", "controller": True}]
    owners = owners if kind is SERVICE else []
    theirs: Body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": {}}
    sim.kube.put(kind, {**theirs, "spec": specs.get(kind.kind, {})})
    strategy = {"type": "NewCluster"} if kind is SERVICE else FAST
    sim.apply(config=GRPC_BLUE, upgradeStrategy=strategy)
    await sim.run(20)
    await sim.kube.delete(kind, NAMESPACE, name)
    place = (kind.kind, NAMESPACE, name)
    await sim.until(lambda: place in sim.kube.objects and sim.is_complete())
    assert held_by(sim, *place[::2])["metadata"]["ownerReferences"][0]["name"] == "demo"


async def expect_suspended(sim: Simulator, left_alone: str | None) -> None:
    """Suspend the service, and expect an Event about an object that is left alone."""
    sim.apply(upgradeStrategy=FAST, suspend=True)
    await sim.run(15)
    assert sim.condition("Suspended") == ("True", "SuspendComplete")
    notes = [note for _, reason, note in sim.kube.events() if reason == "ObjectNotOwned"]
    text = f"{left_alone} exists and is not owned by RayService demo"
    assert [text in note for note in notes] == ([] if left_alone is None else [True])


async def test_a_service_goes_on_with_its_clusters_while_its_route_is_refused() -> None:
    route = a_route()
    route["metadata"]["annotations"].pop(OPT_IN, None)
    sim = await serving_pair(route)
    blue = sim.active
    sim.apply(config=GREEN, annotations=OWN, upgradeStrategy=FAST)
    await sim.run(20)
    assert sim.active == blue
    assert sim.puts(sim.pending), "the pending cluster has its Serve config"


async def take_serve_service(sim: Simulator, cluster: str) -> None:
    """Let a Job have a Service with the name of a cluster's Serve Service."""
    name = f"{cluster}-serve-svc"
    if (SERVICE.kind, NAMESPACE, name) in sim.kube.objects:
        await sim.kube.delete(SERVICE, NAMESPACE, name)
    job = {"kind": "Job", "name": "other", "uid": "u", "controller": True}
    spec: Json = {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]}
    meta: Json = {"name": name, "ownerReferences": [job]}
    sim.kube.put(SERVICE, {"metadata": meta, "spec": spec})


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_no_traffic_moves_to_a_serve_service_of_another_owner(*, is_sharded: bool) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    sim.bus.is_sharded = is_sharded
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending))
    green, name = sim.pending, f"{sim.pending}-serve-svc"
    await take_serve_service(sim, green)
    await sim.run(60)
    assert sim.weights.get(green, 0) == 0
    text = f"Service {NAMESPACE}/{name} exists and is not owned by RayCluster {green}: delete it"
    assert sim.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    assert held_by(sim, SERVICE.kind, name)["spec"]["selector"] == {"app": "elsewhere"}
    await sim.kube.delete(SERVICE, NAMESPACE, name)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=150)


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_single_cluster_gets_no_route_to_a_serve_service_of_another_owner(
    *, is_sharded: bool
) -> None:
    sim = a_pair()
    sim.bus.is_sharded = is_sharded
    sim.apply(config=BLUE, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending or sim.active))
    cluster = sim.pending or sim.active
    await take_serve_service(sim, cluster)
    with suppress(errors.NotFound):
        await sim.kube.delete(HTTP_ROUTE, NAMESPACE, "demo-httproute")
    await sim.run(60)
    assert (HTTP_ROUTE.kind, NAMESPACE, "demo-httproute") not in sim.kube.objects
    await sim.kube.delete(SERVICE, NAMESPACE, f"{cluster}-serve-svc")
    await sim.until(sim.is_complete, seconds=100)
