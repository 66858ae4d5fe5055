"""A HTTPRoute that the user brings: of it only our backends are written, and what is wrong with it is named."""

import copy
from typing import Any

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE
from common.upgrade.traffic_record import ANNOTATION
from support.builders.ray_service import a_strategy
from support.sampling import one_of
from support.simulator.simulator import GREEN, Simulator, a_pair, weights_of
from support.tables import cases

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


async def serving_pair(route: Body | None, *, is_sharded: bool = False) -> Simulator:
    """Return a service that serves through a user's route."""
    sim = a_pair()
    sim.bus.is_sharded = is_sharded
    sim.kube.put(GATEWAY, a_gateway())
    if route is not None:
        sim.kube.put(HTTP_ROUTE, route)
    sim.apply(annotations=OWN, upgradeStrategy=FAST)
    await sim.until(sim.is_complete, seconds=20)
    await sim.run(2)
    return sim


def mine(sim: Simulator) -> Body:
    return sim.kube.objects[(HTTP_ROUTE.kind, "default", "mine")]


def upgrade(sim: Simulator, **fields: Any) -> None:
    sim.apply(config=GREEN, annotations=OWN, upgradeStrategy=FAST, **fields)


@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_an_upgrade_writes_our_backends_and_nothing_else(*, is_sharded: bool) -> None:
    before = a_route()
    sim = await serving_pair(copy.deepcopy(before), is_sharded=is_sharded)
    blue = sim.active
    assert weights_of(mine(sim)) == {blue: 100}
    upgrade(sim)
    seen: set[tuple[int, ...]] = set()
    for _ in range(400):
        await sim.run(0.25)
        seen.add(tuple(weights_of(mine(sim)).values()))
        if sim.is_complete() and sim.active != blue:
            break
    assert {(100, 0), (75, 25), (50, 50), (25, 75), (0, 100)} <= seen
    await sim.run(2)
    after = mine(sim)
    assert weights_of(after) == {sim.active: 100}
    assert (sim.route, sim.gateways) == (None, [])
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
    sim = await serving_pair(a_route(foreign, shared, redirect))
    rules = mine(sim)["spec"]["rules"]
    ours = {"name": f"{sim.active}-serve-svc", "namespace": "default", "port": 8000, "weight": 100}
    assert [rules[0], rules[2]] == [foreign, redirect]
    assert rules[1]["backendRefs"] == [OTHER, {**ours, "filters": [FILTER]}]


@cases(
    ("rules", "ours"),
    {
        "every rule without backends": ([a_rule("/a"), a_rule("/b")], [0, 1]),
        "only rules without backends": ([a_rule("/a", backendRefs=[OTHER]), a_rule("/b")], [1]),
        "the only rule, beside others": ([a_rule("/", backendRefs=[OTHER])], [0]),
    },
)
async def test_which_rules_send_to_us(rules: list[Json], ours: list[int]) -> None:
    sim = await serving_pair(a_route(*rules))
    held = mine(sim)
    found = [
        index for index in range(len(rules)) if weights_of(held, rule=index).get(sim.active) == 100
    ]
    assert found == ours


@cases(
    "rules",
    {
        "all are taken": [a_rule("/a", backendRefs=[OTHER]), a_rule("/b", backendRefs=[OTHER])],
        "a redirect": [a_rule("/a", filters=[{"type": "RequestRedirect"}])],
    },
)
@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_a_route_without_a_rule_for_us_is_named_and_left_alone(
    rules: list[Json], *, is_sharded: bool
) -> None:
    sim = await serving_pair(a_route(*rules), is_sharded=is_sharded)
    upgrade(sim)
    await sim.run(20)
    assert mine(sim)["spec"]["rules"] == rules
    assert "has no rule for this service" in sim.message("UpgradeInProgress")
    assert sim.reasons().count("HTTPRouteNotReady") == 1
    sim.kube.put(HTTP_ROUTE, {**mine(sim), "spec": {**mine(sim)["spec"], "rules": [a_rule()]}})
    await sim.until(lambda: weights_of(mine(sim)).get(sim.pending) == 25, seconds=30)


async def test_a_route_that_carries_another_service_is_left_to_it() -> None:
    route = a_route()
    route["metadata"]["labels"] |= {labels.ORIGIN_NAME: "another", labels.ORIGIN_KIND: "RayService"}
    route["metadata"]["annotations"][ANNOTATION] = "{}"
    sim = await serving_pair(copy.deepcopy(route))
    await sim.run(8)
    assert "carries the traffic of RayService another" in sim.message("Ready")
    assert mine(sim)["spec"] == route["spec"]
    before = len(sim.kube.requests)
    await sim.run(60)
    assert len(sim.kube.requests) == before


@pytest.mark.parametrize("is_sharded", [False, True])
async def test_a_missing_route_is_named_and_taken_when_it_comes(*, is_sharded: bool) -> None:
    sim = await serving_pair(None, is_sharded=is_sharded)
    await sim.run(8)
    text = "HTTPRoute default/mine does not exist; the annotation raybus.io/http-route names it"
    assert text in sim.message("Ready")
    assert sim.reasons().count("HTTPRouteNotReady") == 1
    sim.kube.put(HTTP_ROUTE, a_route())
    await sim.until(lambda: weights_of(mine(sim)) == {sim.active: 100}, seconds=10)
    await sim.run(6)
    assert "does not exist" not in sim.message("Ready")


@pytest.mark.parametrize("is_sharded", one_of(2, [True, False]))
async def test_a_gateway_of_the_users_that_is_not_programmed_holds_the_upgrade(
    *, is_sharded: bool
) -> None:
    sim = await serving_pair(a_route(), is_sharded=is_sharded)
    sim.gateway.is_programmed = False
    sim.gateway.forget()
    await sim.run(2)
    upgrade(sim)
    await sim.run(20)
    assert sim.view.weights == (100, 0)
    assert "waiting: Gateway infra/shared is not Programmed" in sim.message("UpgradeInProgress")
    assert sim.reasons().count("GatewayNotReady") == 1
    sim.gateway.is_programmed = True
    sim.gateway.forget()
    await sim.until(lambda: weights_of(mine(sim)).get(sim.pending) == 25, seconds=30)


async def test_a_foreign_change_of_our_backends_is_corrected_and_the_rest_is_kept() -> None:
    sim = await serving_pair(a_route())
    held = copy.deepcopy(mine(sim))
    held["spec"]["rules"][0]["backendRefs"] = [
        OTHER,
        {**held["spec"]["rules"][0]["backendRefs"][0], "weight": 1},
    ]
    held["spec"]["hostnames"] = ["b.example"]
    sim.kube.put(HTTP_ROUTE, held)
    await sim.run(1)
    assert weights_of(mine(sim)) == {"other": 7, sim.active: 100}
    assert mine(sim)["spec"]["hostnames"] == ["b.example"]


@pytest.mark.parametrize("what", ["delete", "suspend"])
async def test_the_users_route_outlives_the_service_without_our_backends(what: str) -> None:
    before = a_route(a_rule(backendRefs=[OTHER]))
    sim = await serving_pair(copy.deepcopy(before))
    if what == "delete":
        await sim.kube.delete(RAY_SERVICE, "default", "demo")
    else:
        sim.apply(annotations=OWN, upgradeStrategy=FAST, suspend=True)
    await sim.run(15)
    assert sim.clusters == []
    after = mine(sim)
    assert after["spec"] == before["spec"]
    assert (after["metadata"]["labels"], after["metadata"]["annotations"]) == (
        {"team": "a"},
        {"mine": "1", **LET},
    )


@pytest.mark.parametrize("write", one_of(6, range(1, WRITES, 3)))
async def test_a_death_around_any_write_changes_nothing_but_the_time(write: int) -> None:
    sim = await serving_pair(a_route(a_rule(backendRefs=[OTHER])), is_sharded=True)
    blue = sim.active
    sim.writes.count, sim.writes.kill_after = 0, write
    upgrade(sim)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
    await sim.run(2)
    assert sim.writes.count >= write, "or there was no death"
    assert weights_of(mine(sim)) == {"other": 7, sim.active: 100}
    assert (sim.route, sim.gateways) == (None, [])


async def test_a_service_that_moves_to_a_users_route_keeps_its_old_one_in_step() -> None:
    sim = a_pair()
    sim.kube.put(GATEWAY, a_gateway())
    sim.kube.put(HTTP_ROUTE, a_route())
    sim.apply(upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    await sim.run(2)
    blue = sim.active
    upgrade(sim)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
    await sim.run(2)
    assert sim.weights == weights_of(mine(sim)) == {sim.active: 100}


@pytest.mark.parametrize("takes_back", ["the spec", "the name"])
async def test_a_name_of_no_route_in_mid_upgrade_holds_it_and_the_way_back_is_open(
    takes_back: str,
) -> None:
    sim = a_pair()
    sim.apply(upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    await sim.run(2)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: sim.view.weights[1] == 25, seconds=60)
    green = sim.pending
    upgrade(sim)
    await sim.run(30)
    assert sim.weights == {blue: 75, green: 25}
    assert "HTTPRoute default/mine does not exist" in sim.message("UpgradeInProgress")
    if takes_back == "the name":
        sim.apply(config=GREEN, upgradeStrategy=FAST)
        await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)
    else:
        sim.apply(annotations=OWN, upgradeStrategy=FAST)
        await sim.until(lambda: sim.is_complete() and sim.weights == {blue: 100}, seconds=100)


async def test_a_service_that_comes_back_from_a_users_route_gives_it_back_once_its_own_is_taken() -> (
    None
):
    sim = await serving_pair(a_route())
    sim.gateway.is_asleep = True
    sim.apply(upgradeStrategy=FAST)
    await sim.run(5)
    assert weights_of(mine(sim)) == sim.weights == {sim.active: 100}
    sim.gateway.is_asleep = False
    await sim.until(lambda: weights_of(mine(sim)) == {}, seconds=10)
    assert sim.weights == {sim.active: 100}


async def test_a_name_that_is_invalid_is_reported_and_the_default_holds() -> None:
    sim = a_pair()
    sim.apply(annotations={labels.HTTP_ROUTE: "No Such/Route"}, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    await sim.run(10)
    assert sim.reasons().count("InvalidAnnotation") == 1


async def test_at_rest_nothing_is_written() -> None:
    sim = await serving_pair(a_route(), is_sharded=True)
    await sim.run(8)
    before = len(sim.kube.writes())
    await sim.run(120)
    assert len(sim.kube.writes()) == before
