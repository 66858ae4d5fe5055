"""Whose a route is: one that belongs to somebody else is neither written nor read, and is named with what to do."""

import copy
from typing import Any

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from common.traffic_record import ANNOTATION
from scenario.upgrade.test_own_route import FAST, OWN, a_gateway, a_pair, a_route, a_rule, mine, upgrade
from scenario.upgrade.world import GREEN, Pair, weights_of
from support.builders.ray_service import NAMESPACE

SIBLING: Json = {"name": "demo-small-serve-svc", "port": 8000, "weight": 30}
"""What another RayService, `demo-small`, gets from the same rule."""
OPT_IN = labels.ROUTE_PERMITS


def held_by(world: Pair, kind: str, name: str) -> Body:
    return world.kube.objects[kind, NAMESPACE, name]


def owned_by(name: str, uid: str) -> list[Json]:
    return [{"apiVersion": "ray.io/v1", "kind": "RayService", "name": name, "uid": uid, "controller": True}]


@pytest.mark.parametrize("what", ["an upgrade", "the end of the service", "a suspend"])
async def test_the_backend_of_another_service_whose_name_begins_like_ours_stays(what: str) -> None:
    world = await a_pair(a_route(a_rule(backendRefs=[SIBLING, {"name": "demo-serve-svc", "port": 8000}])))
    blue = world.active
    assert weights_of(mine(world)) == {"demo-small": 30, blue: 100}
    if what == "an upgrade":
        upgrade(world)
        await world.until(lambda: world.is_settled() and world.active != blue, seconds=100)
        await world.run(2)
        assert weights_of(mine(world)) == {"demo-small": 30, world.active: 100}
        return
    if what == "a suspend":
        world.apply(annotations=OWN, upgradeStrategy=FAST, suspend=True)
    else:
        await world.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await world.run(15)
    assert mine(world)["spec"]["rules"][0]["backendRefs"] == [SIBLING]


async def test_backends_of_clusters_that_are_gone_are_known_by_the_record() -> None:
    world = await a_pair(a_route(a_rule(backendRefs=[SIBLING])))
    upgrade(world)
    await world.until(lambda: world.view.weights[1] == 50, seconds=60)
    await world.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await world.run(15)
    assert world.clusters == []
    assert mine(world)["spec"]["rules"][0]["backendRefs"] == [SIBLING]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_the_route_that_raybus_made_for_another_service_is_refused(*, is_sharded: bool) -> None:
    world = Pair()
    world.is_sharded = is_sharded
    world.kube.put(GATEWAY, a_gateway())
    route = a_route(a_rule(backendRefs=[{"name": "shop-abcde-serve-svc", "port": 8000, "weight": 100}]))
    route["metadata"] = {
        "name": "shop-httproute",
        "annotations": {ANNOTATION: '{"clusters":{"shop-abcde":{"capacity":100,"weight":100}}}', OPT_IN: "demo"},
        "ownerReferences": owned_by("shop", "shop-uid"),
    }
    world.kube.put(HTTP_ROUTE, copy.deepcopy(route))
    world.apply(annotations={labels.HTTP_ROUTE: "shop-httproute"}, upgradeStrategy=FAST)
    await world.until(world.is_settled, seconds=20)
    await world.run(10)
    after = held_by(world, HTTP_ROUTE.kind, "shop-httproute")
    assert (after["spec"], after["metadata"]["annotations"]) == (route["spec"], route["metadata"]["annotations"])
    assert "HTTPRoute default/shop-httproute is owned by RayService shop" in world.message("Ready")
    assert world.reasons().count("HTTPRouteNotPermitted") == 1
    before = len(world.kube.writes())
    await world.run(60)
    assert len(world.kube.writes()) == before


@pytest.mark.parametrize(
    ("value", "command"),
    [
        (None, "kubectl annotate httproute mine -n default raybus.io/rayservice=demo"),
        ("", "kubectl annotate httproute mine -n default raybus.io/rayservice=demo --overwrite"),
        ("demo2, shop", "kubectl annotate httproute mine -n default raybus.io/rayservice=demo2,shop,demo --overwrite"),
    ],
)
@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_route_whose_owner_did_not_agree_is_left_alone_and_the_command_is_told(
    value: str | None, command: str, *, is_sharded: bool
) -> None:
    route = a_route(a_rule(backendRefs=[{"name": "shop", "port": 80, "weight": 1}]))
    route["metadata"]["annotations"].pop(OPT_IN, None)
    if value is not None:
        route["metadata"]["annotations"][OPT_IN] = value
    world = await a_pair(copy.deepcopy(route), is_sharded=is_sharded)
    await world.run(8)
    after = mine(world)
    assert (after["spec"], after["metadata"]["annotations"]) == (route["spec"], route["metadata"]["annotations"])
    assert after["metadata"]["labels"] == {"team": "a"}
    assert command in world.message("Ready")
    assert world.reasons().count("HTTPRouteNotPermitted") == 1
    before = len(world.kube.writes())
    await world.run(60)
    assert len(world.kube.writes()) == before
    meta = {**after["metadata"], "annotations": {**after["metadata"]["annotations"], OPT_IN: "shop,demo"}}
    world.kube.put(HTTP_ROUTE, {**after, "metadata": meta})
    await world.until(lambda: weights_of(mine(world)).get(world.active) == 100, seconds=10)


async def test_an_owner_who_takes_the_permission_back_keeps_the_route_as_it_is() -> None:
    world = await a_pair(a_route())
    blue = world.active
    held = copy.deepcopy(mine(world))
    del held["metadata"]["annotations"][OPT_IN]
    world.kube.put(HTTP_ROUTE, held)
    upgrade(world)
    await world.run(40)
    assert weights_of(mine(world)) == {blue: 100}
    assert world.view.weights in {(100, 0), (100, None)}
    assert "kubectl annotate httproute mine" in world.message("UpgradeInProgress")
    await world.kube.delete(RAY_SERVICE, NAMESPACE, "demo")
    await world.run(15)
    assert weights_of(mine(world)) == {}, "what is ours is taken out all the same"


@pytest.mark.parametrize(("kind", "name"), [(HTTP_ROUTE, "demo-httproute"), (GATEWAY, "demo-gateway")])
@pytest.mark.parametrize("is_sharded", [True, False])
async def test_an_object_of_somebody_else_under_the_name_of_ours_is_left_alone(
    kind: Any, name: str, *, is_sharded: bool
) -> None:
    world = Pair()
    world.is_sharded = is_sharded
    theirs: Body = a_route(a_rule("/shop"))
    if kind is GATEWAY:
        theirs = {"metadata": {}, "spec": {"gatewayClassName": "slow", "listeners": [{"name": "web", "port": 81}]}}
    theirs["metadata"] = {"name": name}
    world.kube.put(kind, copy.deepcopy(theirs))
    world.apply(upgradeStrategy=FAST)
    await world.until(world.is_settled, seconds=20)
    await world.run(10)
    assert held_by(world, kind.kind, name)["spec"] == theirs["spec"]
    assert f"{kind.kind} default/{name} exists and is not owned by RayService demo" in world.message("Ready")
    before = len(world.kube.writes())
    await world.run(60)
    assert len(world.kube.writes()) == before
    world.apply(upgradeStrategy=FAST, suspend=True)
    await world.run(15)
    assert held_by(world, kind.kind, name)["spec"] == theirs["spec"]


async def test_a_service_goes_on_with_its_clusters_while_its_route_is_refused() -> None:
    route = a_route()
    route["metadata"]["annotations"].pop(OPT_IN, None)
    world = await a_pair(route)
    blue = world.active
    world.apply(config=GREEN, annotations=OWN, upgradeStrategy=FAST)
    await world.run(20)
    assert world.active == blue
    assert world.puts(world.pending), "the pending cluster has its Serve config"
