"""A HTTPRoute that the user brings: of it only our backends are written, and what is wrong with it is named."""

import copy
from typing import Any

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from common.traffic_record import ANNOTATION
from scenario.upgrade.world import GREEN, Pair, weights_of
from support.builders.ray_service import a_strategy
from support.sampling import one_of

FAST = a_strategy(surge=50, step=25, interval=2)
WRITES = 54
"""As many as an upgrade of four steps takes, or a few less."""
OWN = {labels.HTTP_ROUTE: "mine"}
LET = {labels.ROUTE_PERMITS: "demo"}
OTHER: Json = {"name": "other", "port": 80, "weight": 7}
FILTER: Json = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x", "value": "1"}]}}


def a_rule(path: str = "/", **fields: Any) -> Json:
    return {"matches": [{"path": {"type": "PathPrefix", "value": path}}], **fields}


def a_route(*rules: Json, **spec: Any) -> Body:
    """Return a route of a user, on a Gateway that others use too."""
    return {
        "metadata": {"name": "mine", "labels": {"team": "a"}, "annotations": {"mine": "1", **LET}},
        "spec": {
            "parentRefs": [{"name": "shared", "namespace": "infra"}],
            "hostnames": ["a.example"],
            "rules": list(rules) or [a_rule(filters=[FILTER], timeouts={"request": "30s"})],
            **spec,
        },
    }


def a_gateway() -> Body:
    return {"metadata": {"name": "shared", "namespace": "infra"}, "spec": {"gatewayClassName": "fast"}}


async def a_pair(route: Body | None, *, is_sharded: bool = False) -> Pair:
    """Return a service that serves through a user's route."""
    world = Pair()
    world.is_sharded = is_sharded
    world.kube.put(GATEWAY, a_gateway())
    if route is not None:
        world.kube.put(HTTP_ROUTE, route)
    world.apply(annotations=OWN, upgradeStrategy=FAST)
    await world.until(world.is_settled, seconds=20)
    await world.run(2)
    return world


def mine(world: Pair) -> Body:
    return world.kube.objects[(HTTP_ROUTE.kind, "default", "mine")]


def upgrade(world: Pair, **fields: Any) -> None:
    world.apply(config=GREEN, annotations=OWN, upgradeStrategy=FAST, **fields)


@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_an_upgrade_writes_our_backends_and_nothing_else(*, is_sharded: bool) -> None:
    before = a_route()
    world = await a_pair(copy.deepcopy(before), is_sharded=is_sharded)
    blue = world.active
    assert weights_of(mine(world)) == {blue: 100}
    upgrade(world)
    seen: set[tuple[int, ...]] = set()
    for _ in range(400):
        await world.run(0.25)
        seen.add(tuple(weights_of(mine(world)).values()))
        if world.is_settled() and world.active != blue:
            break
    assert {(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)} <= seen
    await world.run(2)
    after = mine(world)
    assert weights_of(after) == {world.active: 100}
    assert (world.route, world.gateways) == (None, [])
    assert ANNOTATION in after["metadata"]["annotations"]
    assert after["metadata"]["labels"]["team"] == "a"
    after["spec"]["rules"][0].pop("backendRefs")
    assert after["spec"] == before["spec"]


async def test_other_rules_and_other_backends_keep_what_they_have() -> None:
    foreign = a_rule("/docs", backendRefs=[{"name": "docs", "port": 80, "weight": 3}])
    shared = a_rule("/api", backendRefs=[OTHER, {"name": "demo-serve-svc", "port": 8000, "filters": [FILTER]}])
    redirect = a_rule("/old", filters=[{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}])
    world = await a_pair(a_route(foreign, shared, redirect))
    rules = mine(world)["spec"]["rules"]
    ours = {"name": f"{world.active}-serve-svc", "namespace": "default", "port": 8000, "weight": 100}
    assert [rules[0], rules[2]] == [foreign, redirect]
    assert rules[1]["backendRefs"] == [OTHER, {**ours, "filters": [FILTER]}]


@pytest.mark.parametrize(
    ("rules", "ours"),
    [
        pytest.param([a_rule("/a"), a_rule("/b")], [0, 1], id="every rule without backends"),
        pytest.param([a_rule("/a", backendRefs=[OTHER]), a_rule("/b")], [1], id="only rules without backends"),
        pytest.param([a_rule("/", backendRefs=[OTHER])], [0], id="the only rule, beside others"),
    ],
)
async def test_which_rules_send_to_us(rules: list[Json], ours: list[int]) -> None:
    world = await a_pair(a_route(*rules))
    held = mine(world)
    found = [index for index in range(len(rules)) if weights_of(held, rule=index).get(world.active) == 100]
    assert found == ours


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([a_rule("/a", backendRefs=[OTHER]), a_rule("/b", backendRefs=[OTHER])], id="all are taken"),
        pytest.param([a_rule("/a", filters=[{"type": "RequestRedirect"}])], id="a redirect"),
    ],
)
@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_a_route_without_a_rule_for_us_is_named_and_left_alone(rules: list[Json], *, is_sharded: bool) -> None:
    world = await a_pair(a_route(*rules), is_sharded=is_sharded)
    upgrade(world)
    await world.run(20)
    assert mine(world)["spec"]["rules"] == rules
    assert "has no rule for this service" in world.message("UpgradeInProgress")
    assert world.reasons().count("HTTPRouteNotReady") == 1
    world.kube.put(HTTP_ROUTE, {**mine(world), "spec": {**mine(world)["spec"], "rules": [a_rule()]}})
    await world.until(lambda: weights_of(mine(world)).get(world.pending) == 25, seconds=30)


async def test_a_route_that_carries_another_service_is_left_to_it() -> None:
    route = a_route()
    route["metadata"]["labels"] |= {labels.ORIGIN_NAME: "another", labels.ORIGIN_KIND: "RayService"}
    route["metadata"]["annotations"][ANNOTATION] = "{}"
    world = await a_pair(copy.deepcopy(route))
    await world.run(8)
    assert "carries the traffic of RayService another" in world.message("Ready")
    assert mine(world)["spec"] == route["spec"]
    before = len(world.kube.requests)
    await world.run(60)
    assert len(world.kube.requests) == before


@pytest.mark.parametrize("is_sharded", [False, True])
async def test_a_missing_route_is_named_and_taken_when_it_comes(*, is_sharded: bool) -> None:
    world = await a_pair(None, is_sharded=is_sharded)
    await world.run(8)
    text = "HTTPRoute default/mine does not exist; the annotation raybus.io/http-route names it"
    assert text in world.message("Ready")
    assert world.reasons().count("HTTPRouteNotReady") == 1
    world.kube.put(HTTP_ROUTE, a_route())
    await world.until(lambda: weights_of(mine(world)) == {world.active: 100}, seconds=10)
    await world.run(6)
    assert "does not exist" not in world.message("Ready")


@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_a_gateway_of_the_users_that_is_not_programmed_holds_the_upgrade(*, is_sharded: bool) -> None:
    world = await a_pair(a_route(), is_sharded=is_sharded)
    world.gateway.is_programmed = False
    world.gateway.forget()
    await world.run(2)
    upgrade(world)
    await world.run(20)
    assert world.view.weights == (100, 0)
    assert "waiting: Gateway infra/shared is not Programmed" in world.message("UpgradeInProgress")
    assert world.reasons().count("GatewayNotReady") == 1
    world.gateway.is_programmed = True
    world.gateway.forget()
    await world.until(lambda: weights_of(mine(world)).get(world.pending) == 25, seconds=30)


async def test_what_somebody_changes_in_our_backends_is_mended_and_the_rest_is_not() -> None:
    world = await a_pair(a_route())
    held = copy.deepcopy(mine(world))
    held["spec"]["rules"][0]["backendRefs"] = [OTHER, {**held["spec"]["rules"][0]["backendRefs"][0], "weight": 1}]
    held["spec"]["hostnames"] = ["b.example"]
    world.kube.put(HTTP_ROUTE, held)
    await world.run(1)
    assert weights_of(mine(world)) == {"other": 7, world.active: 100}
    assert mine(world)["spec"]["hostnames"] == ["b.example"]


@pytest.mark.parametrize("what", ["delete", "suspend"])
async def test_the_users_route_outlives_the_service_without_our_backends(what: str) -> None:
    before = a_route(a_rule(backendRefs=[OTHER]))
    world = await a_pair(copy.deepcopy(before))
    if what == "delete":
        await world.kube.delete(RAY_SERVICE, "default", "demo")
    else:
        world.apply(annotations=OWN, upgradeStrategy=FAST, suspend=True)
    await world.run(15)
    assert world.clusters == []
    after = mine(world)
    assert after["spec"] == before["spec"]
    assert (after["metadata"]["labels"], after["metadata"]["annotations"]) == ({"team": "a"}, {"mine": "1", **LET})


@pytest.mark.parametrize("write", one_of(6, range(1, WRITES, 3)))
async def test_a_death_around_any_write_changes_nothing_but_the_time(write: int) -> None:
    world = await a_pair(a_route(a_rule(backendRefs=[OTHER])), is_sharded=True)
    blue = world.active
    world.writes, world.kill_after = 0, write
    upgrade(world)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=100)
    await world.run(2)
    assert world.writes >= write, "or there was no death"
    assert weights_of(mine(world)) == {"other": 7, world.active: 100}
    assert (world.route, world.gateways) == (None, [])


async def test_a_service_that_moves_to_a_users_route_keeps_its_old_one_in_step() -> None:
    world = Pair()
    world.kube.put(GATEWAY, a_gateway())
    world.kube.put(HTTP_ROUTE, a_route())
    world.apply(upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    await world.run(2)
    blue = world.active
    upgrade(world)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=100)
    await world.run(2)
    assert world.weights == weights_of(mine(world)) == {world.active: 100}


@pytest.mark.parametrize("takes_back", ["the spec", "the name"])
async def test_a_name_of_no_route_in_mid_upgrade_holds_it_and_the_way_back_is_open(takes_back: str) -> None:
    world = Pair()
    world.apply(upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    await world.run(2)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST)
    await world.until(lambda: world.view.weights[1] == 25, seconds=60)
    green = world.pending
    upgrade(world)
    await world.run(30)
    assert world.weights == {blue: 75, green: 25}
    assert "HTTPRoute default/mine does not exist" in world.message("UpgradeInProgress")
    if takes_back == "the name":
        world.apply(config=GREEN, upgradeStrategy=FAST)
        await world.until(lambda: world.is_settled() and world.active == green, seconds=100)
    else:
        world.apply(annotations=OWN, upgradeStrategy=FAST)
        await world.until(lambda: world.is_settled() and world.weights == {blue: 100}, seconds=100)


async def test_a_service_that_comes_back_from_a_users_route_gives_it_back_once_its_own_is_taken() -> None:
    world = await a_pair(a_route())
    world.gateway.is_asleep = True
    world.apply(upgradeStrategy=FAST)
    await world.run(5)
    assert weights_of(mine(world)) == world.weights == {world.active: 100}
    world.gateway.is_asleep = False
    await world.until(lambda: weights_of(mine(world)) == {}, seconds=10)
    assert world.weights == {world.active: 100}


async def test_a_name_that_cannot_be_one_is_told_and_the_default_holds() -> None:
    world = Pair()
    world.apply(annotations={labels.HTTP_ROUTE: "No Such/Route"}, upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    await world.run(10)
    assert world.reasons().count("InvalidAnnotation") == 1


async def test_at_rest_nothing_is_written() -> None:
    world = await a_pair(a_route(), is_sharded=True)
    await world.run(8)
    before = len(world.kube.writes())
    await world.run(120)
    assert len(world.kube.writes()) == before
