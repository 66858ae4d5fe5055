"""The owner of a route: a foreign one is neither written nor read, and is named with the remedy."""

import copy
from contextlib import suppress
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, RAY_SERVICE, SERVICE
from common.upgrade.traffic_record import ANNOTATION
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair, weights_of
from scenario.upgrade.test_grpc import BLUE as GRPC_BLUE
from scenario.upgrade.test_own_route import (
    FAST,
    OWN,
    a_gateway,
    a_pair,
    a_route,
    a_rule,
    mine,
    upgrade,
)
from support.builders.ray_service import NAMESPACE

SIBLING: Json = {"name": "demo-small-serve-svc", "port": 8000, "weight": 30}
"""What another RayService, `demo-small`, gets from the same rule."""
OPT_IN = labels.ROUTE_PERMITS


def held_by(harness: Pair, kind: str, name: str) -> Body:
    return harness.kube.objects[kind, NAMESPACE, name]


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
    harness = await a_pair(
        a_route(a_rule(backendRefs=[SIBLING, {"name": "demo-serve-svc", "port": 8000}]))
    )
    blue = harness.active
    assert weights_of(mine(harness)) == {"demo-small": 30, blue: 100}
    if what == "an upgrade":
        upgrade(harness)
        await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
        await harness.run(2)
        assert weights_of(mine(harness)) == {"demo-small": 30, harness.active: 100}
        return
    if what == "a suspend":
        harness.apply(annotations=OWN, upgradeStrategy=FAST, suspend=True)
    else:
        await harness.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await harness.run(15)
    assert mine(harness)["spec"]["rules"][0]["backendRefs"] == [SIBLING]


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
    harness = await a_pair(a_route(a_rule(backendRefs=[east, imported, ours])))
    if what == "an upgrade":
        blue = harness.active
        upgrade(harness)
        await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
        await harness.run(2)
        backends = mine(harness)["spec"]["rules"][0]["backendRefs"]
        assert backends[:2] == [east, imported]
        assert [(each["name"], each["weight"]) for each in backends[2:]] == [
            (f"{harness.active}-serve-svc", 100)
        ]
        return
    await harness.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await harness.run(15)
    assert mine(harness)["spec"]["rules"][0]["backendRefs"] == [east, imported]


async def test_backends_of_clusters_that_are_gone_are_known_by_the_record() -> None:
    harness = await a_pair(a_route(a_rule(backendRefs=[SIBLING])))
    upgrade(harness)
    await harness.until(lambda: harness.view.weights[1] == 50, seconds=60)
    await harness.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await harness.run(15)
    assert harness.clusters == []
    assert mine(harness)["spec"]["rules"][0]["backendRefs"] == [SIBLING]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_the_route_that_raybus_made_for_another_service_is_refused(
    *, is_sharded: bool
) -> None:
    harness = Pair()
    harness.is_sharded = is_sharded
    harness.kube.put(GATEWAY, a_gateway())
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
    harness.kube.put(HTTP_ROUTE, copy.deepcopy(route))
    harness.apply(annotations={labels.HTTP_ROUTE: "shop-httproute"}, upgradeStrategy=FAST)
    await harness.until(harness.is_complete, seconds=20)
    await harness.run(10)
    after = held_by(harness, HTTP_ROUTE.kind, "shop-httproute")
    assert (after["spec"], after["metadata"]["annotations"]) == (
        route["spec"],
        route["metadata"]["annotations"],
    )
    assert "HTTPRoute default/shop-httproute is owned by RayService shop" in harness.message(
        "Ready"
    )
    assert harness.reasons().count("HTTPRouteNotPermitted") == 1
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before


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
    harness = await a_pair(copy.deepcopy(route), is_sharded=is_sharded)
    await harness.run(8)
    after = mine(harness)
    assert (after["spec"], after["metadata"]["annotations"]) == (
        route["spec"],
        route["metadata"]["annotations"],
    )
    assert after["metadata"]["labels"] == {"team": "a"}
    assert command in harness.message("Ready")
    assert harness.reasons().count("HTTPRouteNotPermitted") == 1
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before
    meta = {
        **after["metadata"],
        "annotations": {**after["metadata"]["annotations"], OPT_IN: "shop,demo"},
    }
    harness.kube.put(HTTP_ROUTE, {**after, "metadata": meta})
    await harness.until(lambda: weights_of(mine(harness)).get(harness.active) == 100, seconds=10)


async def test_an_owner_that_revokes_the_permission_keeps_the_route_as_it_is() -> None:
    harness = await a_pair(a_route())
    blue = harness.active
    held = copy.deepcopy(mine(harness))
    del held["metadata"]["annotations"][OPT_IN]
    harness.kube.put(HTTP_ROUTE, held)
    upgrade(harness)
    await harness.run(40)
    assert weights_of(mine(harness)) == {blue: 100}
    assert harness.view.weights in {(100, 0), (100, None)}
    assert "kubectl annotate httproute mine" in harness.message("UpgradeInProgress")
    await harness.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await harness.run(15)
    assert weights_of(mine(harness)) == {}, "what is ours is taken out all the same"


@pytest.mark.parametrize(
    ("kind", "name"), [(HTTP_ROUTE, "demo-httproute"), (GATEWAY, "demo-gateway")]
)
@pytest.mark.parametrize("is_sharded", [True, False])
async def test_an_object_of_somebody_else_under_the_name_of_ours_is_left_alone(
    kind: Any, name: str, *, is_sharded: bool
) -> None:
    harness = Pair()
    harness.is_sharded = is_sharded
    theirs: Body = a_route(a_rule("/shop"))
    if kind is GATEWAY:
        theirs = {
            "metadata": {},
            "spec": {"gatewayClassName": "slow", "listeners": [{"name": "web", "port": 81}]},
        }
    theirs["metadata"] = {"name": name}
    harness.kube.put(kind, copy.deepcopy(theirs))
    harness.apply(upgradeStrategy=FAST)
    await harness.until(harness.is_complete, seconds=20)
    await harness.run(10)
    assert held_by(harness, kind.kind, name)["spec"] == theirs["spec"]
    assert (
        f"{kind.kind} default/{name} exists and is not owned by RayService demo"
        in harness.message("Ready")
    )
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before
    await expect_suspended(harness, f"{kind.kind} default/{name}")
    assert held_by(harness, kind.kind, name)["spec"] == theirs["spec"]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_suspend_does_not_wait_for_a_grpc_route_of_somebody_else(
    *, is_sharded: bool
) -> None:
    harness = Pair()
    harness.is_sharded = is_sharded
    theirs: Body = {"metadata": {"name": "demo-grpcroute"}, "spec": {"rules": []}}
    harness.kube.put(GRPC_ROUTE, copy.deepcopy(theirs))
    harness.apply(upgradeStrategy=FAST)
    await harness.until(harness.is_complete, seconds=20)
    await expect_suspended(harness, None if is_sharded else "GRPCRoute default/demo-grpcroute")
    assert held_by(harness, GRPC_ROUTE.kind, "demo-grpcroute")["spec"] == theirs["spec"]


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
    harness = Pair()
    harness.is_sharded = is_sharded
    specs: dict[str, Json] = {
        "Gateway": {"gatewayClassName": "slow"},
        "HTTPRoute": a_route(a_rule("/shop"))["spec"],
        "Service": {"selector": {"app": "elsewhere"}, "ports": []},
    }
    owners = [{"kind": "Job", "name": "other", "uid": "u", "controller": True}]
    owners = owners if kind is SERVICE else []
    theirs: Body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": {}}
    harness.kube.put(kind, {**theirs, "spec": specs.get(kind.kind, {})})
    strategy = {"type": "NewCluster"} if kind is SERVICE else FAST
    harness.apply(config=GRPC_BLUE, upgradeStrategy=strategy)
    await harness.run(20)
    await harness.kube.delete(kind, NAMESPACE, name)
    place = (kind.kind, NAMESPACE, name)
    await harness.until(lambda: place in harness.kube.objects and harness.is_complete())
    assert held_by(harness, *place[::2])["metadata"]["ownerReferences"][0]["name"] == "demo"


async def expect_suspended(harness: Pair, left_alone: str | None) -> None:
    """Suspend the service, and expect an Event about an object that is left alone."""
    harness.apply(upgradeStrategy=FAST, suspend=True)
    await harness.run(15)
    assert harness.condition("Suspended") == ("True", "SuspendComplete")
    notes = [note for _, reason, note in harness.kube.events() if reason == "ObjectNotOwned"]
    text = f"{left_alone} exists and is not owned by RayService demo"
    assert [text in note for note in notes] == ([] if left_alone is None else [True])


async def test_a_service_goes_on_with_its_clusters_while_its_route_is_refused() -> None:
    route = a_route()
    route["metadata"]["annotations"].pop(OPT_IN, None)
    harness = await a_pair(route)
    blue = harness.active
    harness.apply(config=GREEN, annotations=OWN, upgradeStrategy=FAST)
    await harness.run(20)
    assert harness.active == blue
    assert harness.puts(harness.pending), "the pending cluster has its Serve config"


async def take_serve_service(harness: Pair, cluster: str) -> None:
    """Let a Job have a Service with the name of a cluster's Serve Service."""
    name = f"{cluster}-serve-svc"
    if (SERVICE.kind, NAMESPACE, name) in harness.kube.objects:
        await harness.kube.delete(SERVICE, NAMESPACE, name)
    job = {"kind": "Job", "name": "other", "uid": "u", "controller": True}
    spec: Json = {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]}
    meta: Json = {"name": name, "ownerReferences": [job]}
    harness.kube.put(SERVICE, {"metadata": meta, "spec": spec})


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_no_traffic_moves_to_a_serve_service_of_another_owner(*, is_sharded: bool) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    harness.is_sharded = is_sharded
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending))
    green, name = harness.pending, f"{harness.pending}-serve-svc"
    await take_serve_service(harness, green)
    await harness.run(60)
    assert harness.weights.get(green, 0) == 0
    text = f"Service {NAMESPACE}/{name} exists and is not owned by RayCluster {green}: delete it"
    assert harness.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    assert held_by(harness, SERVICE.kind, name)["spec"]["selector"] == {"app": "elsewhere"}
    await harness.kube.delete(SERVICE, NAMESPACE, name)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=150)


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_single_cluster_gets_no_route_to_a_serve_service_of_another_owner(
    *, is_sharded: bool
) -> None:
    harness = Pair()
    harness.is_sharded = is_sharded
    harness.apply(config=BLUE, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending or harness.active))
    cluster = harness.pending or harness.active
    await take_serve_service(harness, cluster)
    with suppress(errors.NotFound):
        await harness.kube.delete(HTTP_ROUTE, NAMESPACE, "demo-httproute")
    await harness.run(60)
    assert (HTTP_ROUTE.kind, NAMESPACE, "demo-httproute") not in harness.kube.objects
    await harness.kube.delete(SERVICE, NAMESPACE, f"{cluster}-serve-svc")
    await harness.until(harness.is_complete, seconds=100)
