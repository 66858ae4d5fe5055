"""A change of the route in mid-upgrade is a step as any other: the new route begins with the weights that hold."""

import copy

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import GATEWAY, HTTP_ROUTE
from common.upgrade.traffic_record import ANNOTATION
from scenario.upgrade.harness import GREEN, Pair, weights_of
from scenario.upgrade.test_own_route import a_gateway, a_route
from support.builders.ray_service import NAMESPACE, a_strategy

SLOW = a_strategy(surge=50, step=25, interval=20)
OURS = "demo-httproute"
MIN_CAPACITY = 50
"""What the active cluster has left once 75 percent of the traffic moved."""


class Routes:
    """Notes every split that a route had since some moment."""

    def __init__(self, harness: Pair) -> None:
        self.splits: list[tuple[str, dict[str, int]]] = []
        self._harness = harness
        harness.kube.on_change.append(self._note)

    def _note(self, kind: str, body: Body, is_gone: bool) -> None:
        if kind != HTTP_ROUTE.kind or is_gone:
            return
        held = weights_of(body)
        if held and ANNOTATION in body["metadata"].get("annotations", {}):
            self.splits.append((body["metadata"]["name"], held))

    def since_then(self, cluster: str) -> list[int]:
        """Return the weights of a cluster, in order."""
        return [held.get(cluster, 0) for _, held in self.splits]


def route_of(harness: Pair, name: str) -> Json:
    return weights_of(harness.kube.objects[HTTP_ROUTE.kind, NAMESPACE, name])


def name_route(harness: Pair, name: str | None, **fields: Json) -> None:
    annotations = {} if name is None else {labels.HTTP_ROUTE: name}
    harness.apply(annotations=annotations, upgradeStrategy=SLOW, **fields)


async def a_pair_at(weight: int, *names: str | None) -> Pair:
    """Return an upgrade that gave the pending cluster so much, on the last of these routes; the service used each of them."""
    harness = Pair()
    harness.kube.put(GATEWAY, a_gateway())
    for name in ("mine", "other"):
        route = a_route()
        route["metadata"]["name"] = name
        harness.kube.put(HTTP_ROUTE, route)
    for name in names:
        name_route(harness, name)
        route = name or OURS
        await harness.until(
            lambda route=route: (
                harness.is_complete()
                and (HTTP_ROUTE.kind, NAMESPACE, route) in harness.kube.objects
                and bool(route_of(harness, route))
            ),
            seconds=20,
        )
        await harness.run(3)
    name_route(harness, names[-1], config=GREEN)
    await harness.until(lambda: harness.view.weights == (100 - weight, weight), seconds=120)
    await harness.run(3)
    return harness


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
    harness = await a_pair_at(75, *before)
    blue, green = harness.active, harness.pending
    assert harness.view.capacities == (MIN_CAPACITY, 100)
    seen = Routes(harness)
    name_route(harness, after, config=GREEN)
    await harness.run(8)
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits
    harness.restart()
    await harness.run(2)
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits
    if after is None or (HTTP_ROUTE.kind, NAMESPACE, after) in harness.kube.objects:
        assert route_of(harness, after or OURS) == {blue: 25, green: 75}
        await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=200)
    else:
        assert harness.view.weights == (25, 75)
        route = before[-1] or OURS
        assert route_of(harness, route) == {blue: 25, green: 75}, "requests come that way still"


async def test_a_route_that_is_deleted_and_made_again_begins_with_the_weights_that_hold() -> None:
    harness = await a_pair_at(75, None, "mine")
    blue, green = harness.active, harness.pending
    seen = Routes(harness)
    await harness.kube.delete(HTTP_ROUTE, NAMESPACE, "mine")
    await harness.run(4)
    harness.kube.put(HTTP_ROUTE, a_route())
    await harness.run(6)
    assert route_of(harness, "mine") == {blue: 25, green: 75}
    assert all(held == {blue: 25, green: 75} for _, held in seen.splits), seen.splits


async def test_a_route_that_follows_and_cannot_be_written_is_not_trusted_later() -> None:
    harness = await a_pair_at(25, None, "mine")
    blue, green = harness.active, harness.pending
    stale = copy.deepcopy(harness.kube.objects[HTTP_ROUTE.kind, NAMESPACE, OURS])
    await harness.until(lambda: harness.view.weights == (25, 75), seconds=120)
    await harness.run(3)
    held = harness.kube.objects[HTTP_ROUTE.kind, NAMESPACE, OURS]
    harness.is_traffic_down = True
    harness.kube.put(
        HTTP_ROUTE,
        {**held, "metadata": {**held["metadata"], "annotations": stale["metadata"]["annotations"]}},
    )
    harness.is_traffic_down = False
    name_route(harness, None, config=GREEN)
    seen = Routes(harness)
    await harness.run(6)
    assert all(each == {blue: 25, green: 75} for _, each in seen.splits), seen.splits
