"""A HTTPRoute that the user brings: of it only our backends are written, and what is wrong with it is named."""

import copy
from typing import Any

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from common.upgrade.traffic_record import ANNOTATION
from scenario.upgrade.harness import GREEN, Pair, weights_of
from support.builders.ray_service import a_strategy
from support.sampling import one_of

FAST = a_strategy(surge=50, step=25, interval=2)
WRITES = 54
"""As many as an upgrade of four steps takes, or a few less."""
OWN = {labels.HTTP_ROUTE: "mine"}
LET = {labels.ROUTE_PERMITS: "demo"}
OTHER: Json = {"name": "other", "port": 80, "weight": 7}
FILTER: Json = {
    "type": "RequestHeaderModifier",
    "requestHeaderModifier": {"set": [{"name": "x", "value": "1"}]},
}


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
    return {
        "metadata": {"name": "shared", "namespace": "infra"},
        "spec": {"gatewayClassName": "fast"},
    }


async def a_pair(route: Body | None, *, is_sharded: bool = False) -> Pair:
    """Return a service that serves through a user's route."""
    harness = Pair()
    harness.is_sharded = is_sharded
    harness.kube.put(GATEWAY, a_gateway())
    if route is not None:
        harness.kube.put(HTTP_ROUTE, route)
    harness.apply(annotations=OWN, upgradeStrategy=FAST)
    await harness.until(harness.is_complete, seconds=20)
    await harness.run(2)
    return harness


def mine(harness: Pair) -> Body:
    return harness.kube.objects[(HTTP_ROUTE.kind, "default", "mine")]


def upgrade(harness: Pair, **fields: Any) -> None:
    harness.apply(config=GREEN, annotations=OWN, upgradeStrategy=FAST, **fields)


@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_an_upgrade_writes_our_backends_and_nothing_else(*, is_sharded: bool) -> None:
    before = a_route()
    harness = await a_pair(copy.deepcopy(before), is_sharded=is_sharded)
    blue = harness.active
    assert weights_of(mine(harness)) == {blue: 100}
    upgrade(harness)
    seen: set[tuple[int, ...]] = set()
    for _ in range(400):
        await harness.run(0.25)
        seen.add(tuple(weights_of(mine(harness)).values()))
        if harness.is_complete() and harness.active != blue:
            break
    assert {(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)} <= seen
    await harness.run(2)
    after = mine(harness)
    assert weights_of(after) == {harness.active: 100}
    assert (harness.route, harness.gateways) == (None, [])
    assert ANNOTATION in after["metadata"]["annotations"]
    assert after["metadata"]["labels"]["team"] == "a"
    after["spec"]["rules"][0].pop("backendRefs")
    assert after["spec"] == before["spec"]


async def test_other_rules_and_other_backends_keep_what_they_have() -> None:
    foreign = a_rule("/docs", backendRefs=[{"name": "docs", "port": 80, "weight": 3}])
    shared = a_rule(
        "/api", backendRefs=[OTHER, {"name": "demo-serve-svc", "port": 8000, "filters": [FILTER]}]
    )
    redirect = a_rule(
        "/old", filters=[{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}]
    )
    harness = await a_pair(a_route(foreign, shared, redirect))
    rules = mine(harness)["spec"]["rules"]
    ours = {
        "name": f"{harness.active}-serve-svc",
        "namespace": "default",
        "port": 8000,
        "weight": 100,
    }
    assert [rules[0], rules[2]] == [foreign, redirect]
    assert rules[1]["backendRefs"] == [OTHER, {**ours, "filters": [FILTER]}]


@pytest.mark.parametrize(
    ("rules", "ours"),
    [
        pytest.param([a_rule("/a"), a_rule("/b")], [0, 1], id="every rule without backends"),
        pytest.param(
            [a_rule("/a", backendRefs=[OTHER]), a_rule("/b")], [1], id="only rules without backends"
        ),
        pytest.param([a_rule("/", backendRefs=[OTHER])], [0], id="the only rule, beside others"),
    ],
)
async def test_which_rules_send_to_us(rules: list[Json], ours: list[int]) -> None:
    harness = await a_pair(a_route(*rules))
    held = mine(harness)
    found = [
        index
        for index in range(len(rules))
        if weights_of(held, rule=index).get(harness.active) == 100
    ]
    assert found == ours


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            [a_rule("/a", backendRefs=[OTHER]), a_rule("/b", backendRefs=[OTHER])],
            id="all are taken",
        ),
        pytest.param([a_rule("/a", filters=[{"type": "RequestRedirect"}])], id="a redirect"),
    ],
)
@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_a_route_without_a_rule_for_us_is_named_and_left_alone(
    rules: list[Json], *, is_sharded: bool
) -> None:
    harness = await a_pair(a_route(*rules), is_sharded=is_sharded)
    upgrade(harness)
    await harness.run(20)
    assert mine(harness)["spec"]["rules"] == rules
    assert "has no rule for this service" in harness.message("UpgradeInProgress")
    assert harness.reasons().count("HTTPRouteNotReady") == 1
    harness.kube.put(
        HTTP_ROUTE, {**mine(harness), "spec": {**mine(harness)["spec"], "rules": [a_rule()]}}
    )
    await harness.until(lambda: weights_of(mine(harness)).get(harness.pending) == 25, seconds=30)


async def test_a_route_that_carries_another_service_is_left_to_it() -> None:
    route = a_route()
    route["metadata"]["labels"] |= {labels.ORIGIN_NAME: "another", labels.ORIGIN_KIND: "RayService"}
    route["metadata"]["annotations"][ANNOTATION] = "{}"
    harness = await a_pair(copy.deepcopy(route))
    await harness.run(8)
    assert "carries the traffic of RayService another" in harness.message("Ready")
    assert mine(harness)["spec"] == route["spec"]
    before = len(harness.kube.requests)
    await harness.run(60)
    assert len(harness.kube.requests) == before


@pytest.mark.parametrize("is_sharded", [False, True])
async def test_a_missing_route_is_named_and_taken_when_it_comes(*, is_sharded: bool) -> None:
    harness = await a_pair(None, is_sharded=is_sharded)
    await harness.run(8)
    text = "HTTPRoute default/mine does not exist; the annotation raybus.io/http-route names it"
    assert text in harness.message("Ready")
    assert harness.reasons().count("HTTPRouteNotReady") == 1
    harness.kube.put(HTTP_ROUTE, a_route())
    await harness.until(lambda: weights_of(mine(harness)) == {harness.active: 100}, seconds=10)
    await harness.run(6)
    assert "does not exist" not in harness.message("Ready")


@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_a_gateway_of_the_users_that_is_not_programmed_holds_the_upgrade(
    *, is_sharded: bool
) -> None:
    harness = await a_pair(a_route(), is_sharded=is_sharded)
    harness.gateway.is_programmed = False
    harness.gateway.forget()
    await harness.run(2)
    upgrade(harness)
    await harness.run(20)
    assert harness.view.weights == (100, 0)
    assert "waiting: Gateway infra/shared is not Programmed" in harness.message("UpgradeInProgress")
    assert harness.reasons().count("GatewayNotReady") == 1
    harness.gateway.is_programmed = True
    harness.gateway.forget()
    await harness.until(lambda: weights_of(mine(harness)).get(harness.pending) == 25, seconds=30)


async def test_a_foreign_change_of_our_backends_is_corrected_and_the_rest_is_kept() -> None:
    harness = await a_pair(a_route())
    held = copy.deepcopy(mine(harness))
    held["spec"]["rules"][0]["backendRefs"] = [
        OTHER,
        {**held["spec"]["rules"][0]["backendRefs"][0], "weight": 1},
    ]
    held["spec"]["hostnames"] = ["b.example"]
    harness.kube.put(HTTP_ROUTE, held)
    await harness.run(1)
    assert weights_of(mine(harness)) == {"other": 7, harness.active: 100}
    assert mine(harness)["spec"]["hostnames"] == ["b.example"]


@pytest.mark.parametrize("what", ["delete", "suspend"])
async def test_the_users_route_outlives_the_service_without_our_backends(what: str) -> None:
    before = a_route(a_rule(backendRefs=[OTHER]))
    harness = await a_pair(copy.deepcopy(before))
    if what == "delete":
        await harness.kube.delete(RAY_SERVICE, "default", "demo")
    else:
        harness.apply(annotations=OWN, upgradeStrategy=FAST, suspend=True)
    await harness.run(15)
    assert harness.clusters == []
    after = mine(harness)
    assert after["spec"] == before["spec"]
    assert (after["metadata"]["labels"], after["metadata"]["annotations"]) == (
        {"team": "a"},
        {"mine": "1", **LET},
    )


@pytest.mark.parametrize("write", one_of(6, range(1, WRITES, 3)))
async def test_a_death_around_any_write_changes_nothing_but_the_time(write: int) -> None:
    harness = await a_pair(a_route(a_rule(backendRefs=[OTHER])), is_sharded=True)
    blue = harness.active
    harness.writes, harness.kill_after = 0, write
    upgrade(harness)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
    await harness.run(2)
    assert harness.writes >= write, "or there was no death"
    assert weights_of(mine(harness)) == {"other": 7, harness.active: 100}
    assert (harness.route, harness.gateways) == (None, [])


async def test_a_service_that_moves_to_a_users_route_keeps_its_old_one_in_step() -> None:
    harness = Pair()
    harness.kube.put(GATEWAY, a_gateway())
    harness.kube.put(HTTP_ROUTE, a_route())
    harness.apply(upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    await harness.run(2)
    blue = harness.active
    upgrade(harness)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
    await harness.run(2)
    assert harness.weights == weights_of(mine(harness)) == {harness.active: 100}


@pytest.mark.parametrize("takes_back", ["the spec", "the name"])
async def test_a_name_of_no_route_in_mid_upgrade_holds_it_and_the_way_back_is_open(
    takes_back: str,
) -> None:
    harness = Pair()
    harness.apply(upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    await harness.run(2)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: harness.view.weights[1] == 25, seconds=60)
    green = harness.pending
    upgrade(harness)
    await harness.run(30)
    assert harness.weights == {blue: 75, green: 25}
    assert "HTTPRoute default/mine does not exist" in harness.message("UpgradeInProgress")
    if takes_back == "the name":
        harness.apply(config=GREEN, upgradeStrategy=FAST)
        await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=100)
    else:
        harness.apply(annotations=OWN, upgradeStrategy=FAST)
        await harness.until(
            lambda: harness.is_complete() and harness.weights == {blue: 100}, seconds=100
        )


async def test_a_service_that_comes_back_from_a_users_route_gives_it_back_once_its_own_is_taken() -> (
    None
):
    harness = await a_pair(a_route())
    harness.gateway.is_asleep = True
    harness.apply(upgradeStrategy=FAST)
    await harness.run(5)
    assert weights_of(mine(harness)) == harness.weights == {harness.active: 100}
    harness.gateway.is_asleep = False
    await harness.until(lambda: weights_of(mine(harness)) == {}, seconds=10)
    assert harness.weights == {harness.active: 100}


async def test_a_name_that_is_invalid_is_reported_and_the_default_holds() -> None:
    harness = Pair()
    harness.apply(annotations={labels.HTTP_ROUTE: "No Such/Route"}, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    await harness.run(10)
    assert harness.reasons().count("InvalidAnnotation") == 1


async def test_at_rest_nothing_is_written() -> None:
    harness = await a_pair(a_route(), is_sharded=True)
    await harness.run(8)
    before = len(harness.kube.writes())
    await harness.run(120)
    assert len(harness.kube.writes()) == before
