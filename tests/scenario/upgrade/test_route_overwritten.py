"""A tool that owns `spec.rules` of a user's route empties our backends with each sync: repaired, reported, and never a race of writes."""

import copy

import msgspec
import pytest

from common.api.gateway import HttpRoute
from common.api.opaque import Body, Json
from common.kube.resources import HTTP_ROUTE, POD
from common.upgrade.traffic_record import of_route
from scenario.upgrade.test_own_route import OWN, a_route, a_rule, mine, serving_pair, upgrade
from support.builders.ray_service import NAMESPACE, a_strategy
from support.simulator.simulator import GREEN, Simulator, weights_of

TOOL = "argocd-controller"
FULL = a_strategy(surge=100, step=50, interval=600)


def sync(sim: Simulator) -> None:
    """Apply the manifest in Git again, as server-side apply with force does: our backends are not in it."""
    held = copy.deepcopy(mine(sim))
    held["spec"]["rules"] = [a_rule()]
    entry: Json = {
        "manager": TOOL,
        "operation": "Apply",
        "time": "2026-01-01T12:00:00Z",
        "fieldsV1": {"f:spec": {"f:rules": {}}},
    }
    ours: Json = {**entry, "manager": "raybus-traffic-manager", "time": "2026-01-01T12:00:01Z"}
    held["metadata"]["managedFields"] = [entry, ours]
    sim.kube.put(HTTP_ROUTE, held)


async def test_the_manager_that_replaced_our_backends_is_reported_and_they_are_written_again_at_once() -> (
    None
):
    sim = await serving_pair(a_route())
    sync(sim)
    await sim.reconcile()
    assert weights_of(mine(sim)) == {sim.active: 100}
    await sim.run(10)
    text = f"field manager {TOOL} replaced spec.rules"
    assert text in sim.message("Ready")
    assert [
        note
        for _, reason, note in sim.kube.events()
        if reason == "HTTPRouteOverwritten" and text in note
    ]
    assert sim.reasons().count("HTTPRouteOverwritten") == 1
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
    await sim.run(1000)
    assert text not in sim.message("Ready")


async def test_in_mid_upgrade_the_weights_that_hold_are_written_again() -> None:
    sim = await serving_pair(a_route())
    blue = sim.active
    upgrade(sim)
    await sim.until(lambda: sim.view.weights == (50, 50), seconds=700)
    sync(sim)
    await sim.reconcile()
    assert weights_of(mine(sim)) == {blue: 50, sim.pending: 50}
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)


async def test_a_tool_that_answers_each_write_with_its_own_meets_a_back_off() -> None:
    sim = await serving_pair(a_route())
    count = 0

    def answer(kind: str, body: Body, is_gone: bool) -> None:
        nonlocal count
        if (
            kind == HTTP_ROUTE.kind
            and not is_gone
            and weights_of(body)
            and body["metadata"]["name"] == "mine"
        ):
            count += 1
            sync(sim)

    sim.kube.on_change.append(answer)
    sync(sim)
    await sim.run(60)
    assert 5 <= count <= 25


async def test_a_rule_that_its_user_adds_is_no_overwriting() -> None:
    sim = await serving_pair(a_route())
    held = copy.deepcopy(mine(sim))
    held["spec"]["rules"].append(
        a_rule("/v2", backendRefs=[{"name": "demo-serve-svc", "port": 8000}])
    )
    sim.kube.put(HTTP_ROUTE, held)
    await sim.run(5)
    assert weights_of(mine(sim), rule=1) == {sim.active: 100}
    assert "HTTPRouteOverwritten" not in sim.reasons()


def answers_each_write(sim: Simulator) -> list[float]:
    """Have the tool answer each write of ours at once; return the moments of those writes."""
    moments: list[float] = []

    def answer(kind: str, body: Body, is_gone: bool) -> None:
        if (
            kind == HTTP_ROUTE.kind
            and not is_gone
            and weights_of(body)
            and body["metadata"]["name"] == "mine"
        ):
            moments.append(sim.clock.monotonic())
            sync(sim)

    sim.kube.on_change.append(answer)
    return moments


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_a_shed_does_not_wait_for_the_back_off(victim: str) -> None:
    sim = await serving_pair(a_route())
    sim.apply(config=GREEN, annotations=OWN, upgradeStrategy=FULL)
    await sim.until(lambda: sim.view.weights == (50, 50), seconds=700)
    await sim.run(10)
    name, other = (sim.active, sim.pending) if victim == "active" else (sim.pending, sim.active)
    moments = answers_each_write(sim)
    sync(sim)
    await sim.until(lambda: len(moments) > 1 and moments[-1] - moments[-2] > 3, seconds=60)
    sim.kube.set_status(POD, NAMESPACE, f"{name}-worker", {"phase": "Failed"})
    died_at, count = sim.clock.monotonic(), len(moments)
    await sim.until(lambda: len(moments) > count, seconds=60)
    assert moments[count] - died_at <= 0.5
    record = of_route(msgspec.json.decode(msgspec.json.encode(mine(sim)), type=HttpRoute))
    assert (record.clusters[name].weight, record.clusters[other].weight) == (0, 100)
    await sim.run(60)
    assert len(moments) - count <= 16, "a shed is one write, and the back-off goes on"


async def test_a_spec_that_nobody_takes_in_meets_the_same_back_off() -> None:
    sim = await serving_pair(a_route())
    sim.apply(config=GREEN, annotations=OWN, upgradeStrategy=FULL)
    await sim.until(lambda: sim.view.weights == (50, 50), seconds=700)
    sim.apply(config=GREEN, annotations=OWN, upgradeStrategy=a_strategy(surge=20, step=50))
    await sim.run(2)
    moments = answers_each_write(sim)
    sync(sim)
    await sim.run(60)
    assert 5 <= len(moments) <= 25
