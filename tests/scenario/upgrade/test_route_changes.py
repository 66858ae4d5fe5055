"""A change of the route in mid-upgrade is a step as any other: the new route begins with the weights that hold."""

import copy

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE
from common.traffic_record import ANNOTATION
from scenario.upgrade.test_own_route import a_gateway, a_route
from scenario.upgrade.world import GREEN, Pair, weights_of
from support.builders.ray_service import NAMESPACE, a_strategy

SLOW = a_strategy(surge=50, step=25, interval=20)
OURS = "demo-httproute"
LEAST_CAPACITY = 50
"""What the active cluster has left once 75 percent of the traffic moved."""


class Routes:
    """Notes every split that a route had since some moment."""

    def __init__(self, world: Pair) -> None:
        self.splits: list[tuple[str, dict[str, int]]] = []
        self._world = world
        world.kube.on_change.append(self._note)

    def _note(self, kind: str, body: Body, is_gone: bool) -> None:
        if kind != HTTP_ROUTE.kind or is_gone:
            return
        held = weights_of(body)
        if held and ANNOTATION in body["metadata"].get("annotations", {}):
            self.splits.append((body["metadata"]["name"], held))

    def since_then(self, cluster: str) -> list[int]:
        """Return the weights of a cluster, in order."""
        return [held.get(cluster, 0) for _, held in self.splits]


def route_of(world: Pair, name: str) -> Json:
    return weights_of(world.kube.objects[HTTP_ROUTE.kind, NAMESPACE, name])


def name_route(world: Pair, name: str | None, **fields: Json) -> None:
    annotations = {} if name is None else {labels.HTTP_ROUTE: name}
    world.apply(annotations=annotations, upgradeStrategy=SLOW, **fields)


async def a_pair_at(weight: int, *names: str | None) -> Pair:
    """Return an upgrade that gave the pending cluster so much, on the last of these routes; the service used each of them."""
    world = Pair()
    world.kube.put(GATEWAY, a_gateway())
    for name in ("mine", "other"):
        route = a_route()
        route["metadata"]["name"] = name
        world.kube.put(HTTP_ROUTE, route)
    for name in names:
        name_route(world, name)
        carrier = name or OURS
        await world.until(
            lambda carrier=carrier: (
                world.is_settled()
                and (HTTP_ROUTE.kind, NAMESPACE, carrier) in world.kube.objects
                and bool(route_of(world, carrier))
            ),
            seconds=20,
        )
        await world.run(3)
    name_route(world, names[-1], config=GREEN)
    await world.until(lambda: world.view.weights == (100 - weight, weight), seconds=120)
    await world.run(3)
    return world


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
async def test_a_new_route_begins_with_the_weights_that_hold(before: list[str | None], after: str | None) -> None:
    world = await a_pair_at(75, *before)
    blue, green = world.active, world.pending
    assert world.view.capacities == (LEAST_CAPACITY, 100)
    seen = Routes(world)
    name_route(world, after, config=GREEN)
    await world.run(8)
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits
    world.restart()
    await world.run(2)
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits
    if after is None or (HTTP_ROUTE.kind, NAMESPACE, after) in world.kube.objects:
        assert route_of(world, after or OURS) == {blue: 25, green: 75}
        await world.until(lambda: world.is_settled() and world.active == green, seconds=200)
    else:
        assert world.view.weights == (25, 75)
        carrier = before[-1] or OURS
        assert route_of(world, carrier) == {blue: 25, green: 75}, "requests come that way still"


async def test_a_route_that_is_deleted_and_made_again_begins_with_the_weights_that_hold() -> None:
    world = await a_pair_at(75, None, "mine")
    blue, green = world.active, world.pending
    seen = Routes(world)
    await world.kube.delete(HTTP_ROUTE, NAMESPACE, "mine")
    await world.run(4)
    world.kube.put(HTTP_ROUTE, a_route())
    await world.run(6)
    assert route_of(world, "mine") == {blue: 25, green: 75}
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits


async def test_a_route_that_follows_and_cannot_be_written_is_not_believed_later() -> None:
    world = await a_pair_at(25, None, "mine")
    blue, green = world.active, world.pending
    stale = copy.deepcopy(world.kube.objects[HTTP_ROUTE.kind, NAMESPACE, OURS])
    await world.until(lambda: world.view.weights == (25, 75), seconds=120)
    await world.run(3)
    held = world.kube.objects[HTTP_ROUTE.kind, NAMESPACE, OURS]
    world.is_traffic_down = True
    world.kube.put(
        HTTP_ROUTE, {**held, "metadata": {**held["metadata"], "annotations": stale["metadata"]["annotations"]}}
    )
    world.is_traffic_down = False
    name_route(world, None, config=GREEN)
    seen = Routes(world)
    await world.run(6)
    assert all(each == {blue: 25, green: 75} for _, each in seen.splits), seen.splits
