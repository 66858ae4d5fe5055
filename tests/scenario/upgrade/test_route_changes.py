"""A change of the route in mid-upgrade is a step as any other: the new route begins with the weights that hold."""

import copy

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE
from common.upgrade.traffic_record import ANNOTATION
from scenario.upgrade.test_own_route import a_gateway, a_route
from support.builders.ray_service import NAMESPACE, a_strategy
from support.simulator.simulator import GREEN, Simulator, a_pair, weights_of

SLOW = a_strategy(surge=50, step=25, interval=20)
OURS = "demo-httproute"
MIN_CAPACITY = 50
"""Minimum capacity of the active cluster after 75 percent of the traffic moved."""


class Routes:
    """Notes every split that a route had since some moment."""

    def __init__(self, sim: Simulator) -> None:
        self.splits: list[tuple[str, dict[str, int]]] = []
        self._harness = sim
        sim.kube.on_change.append(self._note)

    def _note(self, kind: str, body: Body, is_gone: bool) -> None:
        if kind != HTTP_ROUTE.kind or is_gone:
            return
        held = weights_of(body)
        if held and ANNOTATION in body["metadata"].get("annotations", {}):
            self.splits.append((body["metadata"]["name"], held))

    def since_then(self, cluster: str) -> list[int]:
        """Return the weights of a cluster, in order."""
        return [held.get(cluster, 0) for _, held in self.splits]


def route_of(sim: Simulator, name: str) -> Json:
    return weights_of(sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, name])


def name_route(sim: Simulator, name: str | None, **fields: Json) -> None:
    annotations = {} if name is None else {labels.HTTP_ROUTE: name}
    sim.apply(annotations=annotations, upgradeStrategy=SLOW, **fields)


async def a_pair_at(weight: int, *names: str | None) -> Simulator:
    """Return an upgrade that gave the pending cluster so much, on the last of these routes; the service used each of them."""
    sim = a_pair()
    sim.kube.put(GATEWAY, a_gateway())
    for name in ("mine", "other"):
        route = a_route()
        route["metadata"]["name"] = name
        sim.kube.put(HTTP_ROUTE, route)
    for name in names:
        name_route(sim, name)
        route = name or OURS
        await sim.until(
            lambda route=route: (
                sim.is_complete()
                and (HTTP_ROUTE.kind, NAMESPACE, route) in sim.kube.objects
                and bool(route_of(sim, route))
            ),
            seconds=20,
        )
        await sim.run(3)
    name_route(sim, names[-1], config=GREEN)
    await sim.until(lambda: sim.view.weights == (100 - weight, weight), seconds=120)
    await sim.run(3)
    return sim


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([None, "mine"], None, id="the user's, back to ours that was there before"),
        pytest.param(["mine"], None, id="the user's to ours that is new"),
        pytest.param([None], "mine", id="ours to the user's"),
        pytest.param(["mine"], "other", id="the user's to another of the user's"),
        pytest.param(["mine", "other"], "mine", id="the user's to an earlier one of the user's"),
        pytest.param([None], "missing", id="ours to one that does not exist"),
        pytest.param(["mine"], "missing", id="the user's to one that does not exist"),
        pytest.param(["mine"], "No Such/Route", id="the user's to a name that cannot be one"),
    ],
)
async def test_a_new_route_begins_with_the_weights_that_hold(
    before: list[str | None], after: str | None
) -> None:
    sim = await a_pair_at(75, *before)
    blue, green = sim.active, sim.pending
    assert sim.view.capacities == (MIN_CAPACITY, 100)
    seen = Routes(sim)
    name_route(sim, after, config=GREEN)
    await sim.run(8)
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits
    sim.restart()
    await sim.run(2)
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits
    if after is None or (HTTP_ROUTE.kind, NAMESPACE, after) in sim.kube.objects:
        assert route_of(sim, after or OURS) == {blue: 25, green: 75}
        await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=200)
    else:
        assert sim.view.weights == (25, 75)
        route = before[-1] or OURS
        assert route_of(sim, route) == {blue: 25, green: 75}, "requests come that way still"


async def test_a_route_that_is_deleted_and_made_again_begins_with_the_weights_that_hold() -> None:
    sim = await a_pair_at(75, None, "mine")
    blue, green = sim.active, sim.pending
    seen = Routes(sim)
    await sim.kube.delete(HTTP_ROUTE, NAMESPACE, "mine")
    await sim.run(4)
    sim.kube.put(HTTP_ROUTE, a_route())
    await sim.run(6)
    assert route_of(sim, "mine") == {blue: 25, green: 75}
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits


async def test_a_route_that_follows_and_cannot_be_written_is_not_trusted_later() -> None:
    sim = await a_pair_at(25, None, "mine")
    blue, green = sim.active, sim.pending
    stale = copy.deepcopy(sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, OURS])
    await sim.until(lambda: sim.view.weights == (25, 75), seconds=120)
    await sim.run(3)
    held = sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, OURS]
    sim.services["traffic"].is_down = True
    sim.kube.put(
        HTTP_ROUTE,
        {**held, "metadata": {**held["metadata"], "annotations": stale["metadata"]["annotations"]}},
    )
    sim.services["traffic"].is_down = False
    name_route(sim, None, config=GREEN)
    seen = Routes(sim)
    await sim.run(6)
    assert all(each == {blue: 25, green: 75} for _, each in seen.splits), seen.splits
