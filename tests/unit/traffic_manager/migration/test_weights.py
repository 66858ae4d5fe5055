"""The share of the traffic that each cluster gets; spec rayservice §8.4, §8.10."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from support.tables import cases
from traffic_manager.migration import weights
from traffic_manager.migration.state import ClusterState, Migration, Standing

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(surge=20, step=5, interval=timedelta(seconds=10))
LONG_AGO = NOW - timedelta(minutes=1)
ACTIVE = ClusterState(
    capacity=80, weight=70, moved_at=LONG_AGO, proven=80, reported=80, ready=80, rescue=80
)
PENDING = ClusterState(
    capacity=40, weight=30, moved_at=LONG_AGO, proven=40, reported=40, ready=40, rescue=40
)


def forward(pending: dict[str, Any] | None = None, **fields: Any) -> Migration:
    side = replace(PENDING, **(pending or {}))
    return replace(Migration(direction=Direction.FORWARD, active=ACTIVE, pending=side), **fields)


def back(active: dict[str, Any] | None = None, pending: dict[str, Any] | None = None) -> Migration:
    return Migration(
        direction=Direction.BACK,
        active=replace(ACTIVE, **(active or {})),
        pending=replace(PENDING, **(pending or {})),
    )


@cases(
    ("migration", "expected"),
    {
        "a step": (forward(), (65, 35)),
        "the capacity caps the step": (forward({"weight": 38}), (60, 40)),
        "what was seen to run caps the step": (forward({"proven": 33}), (67, 33)),
        "all that the capacity allows is carried": (forward({"weight": 40}), (70, 40)),
        "nothing is proven": (forward({"proven": 0}), (70, 30)),
        "no more than now is proven": (forward({"proven": 30}), (70, 30)),
        "the interval is not over": (forward({"moved_at": NOW - timedelta(seconds=9)}), (70, 30)),
        "the interval is over": (forward({"moved_at": NOW - timedelta(seconds=10)}), (65, 35)),
        "the Gateway takes no requests": (forward(gateway_problem="is not Programmed"), (70, 30)),
        "the last weights are not in force": (
            forward(route_problem="is not accepted yet"),
            (70, 30),
        ),
        "a pause holds the way forward": (forward(pause="paused"), (70, 30)),
        "a sick cluster gives back in a pause too": (
            forward({"proven": 0, "sustainable": 0, "ready": 0}, pause="paused"),
            (80, 20),
        ),
        "a sick cluster gives back what fits": (
            forward({"proven": 0, "sustainable": 0, "ready": 0}),
            (80, 20),
        ),
        "a sick cluster without traffic gives nothing": (
            forward({"weight": 0, "proven": 0, "sustainable": 0, "ready": 0}),
            (70, 0),
        ),
        "a step back": (back(), (75, 25)),
        "the capacity caps the step back": (back({"weight": 78}, {"weight": 22}), (80, 20)),
        "a pause does not close the way back": (replace(back(), pause="paused"), (75, 25)),
        "nothing goes to an active cluster that does not run": (back({"proven": 0}), (70, 30)),
        "a sick pending cluster loses it at once": (back(pending={"is_alive": False}), (80, 20)),
    },
)
def test_the_weights_that_should_hold(migration: Migration, expected: tuple[int, int]) -> None:
    split = weights.decide(migration, POLICY, now=NOW)
    assert (split.active, split.pending) == expected
    assert split.note


SICK: dict[str, Any] = {
    "proven": 0,
    "sustainable": 0,
    "surviving": 0,
    "ready": 0,
    "rescue": 0,
    "unhealthy_reason": "its head pod is not ready",
}


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("pause", [None, "paused"])
@cases(
    ("active", "pending", "expected"),
    {
        "active dies, pending is whole": (
            SICK,
            {"capacity": 100, "proven": 100, "ready": 100, "rescue": 100},
            (0, 100),
        ),
        "active dies, pending takes what it can carry": (SICK, {}, (60, 40)),
        "pending dies": ({}, SICK, (80, 20)),
        "a partly sick one sheds what it cannot carry": (
            {"sustainable": 65, "ready": 65},
            {},
            (65, 35),
        ),
        "as far as the other can carry it": (
            {"sustainable": 40, "ready": 40},
            {"ready": 33},
            (67, 33),
        ),
        "one that carries its share sheds nothing": ({}, {"sustainable": 35, "ready": 35}, None),
        "where neither can carry, all stays": (SICK, SICK, None),
    },
)
def test_what_a_side_is_observed_not_to_carry_goes_at_once(
    direction: Direction,
    pause: str | None,
    active: dict[str, Any],
    pending: dict[str, Any],
    expected: tuple[int, int] | None,
) -> None:
    m = Migration(
        direction=direction,
        active=replace(ACTIVE, **{"moved_at": NOW, **active}),
        pending=replace(PENDING, **{"moved_at": NOW, **pending}),
        pause=pause,
        route_problem="is not accepted yet",
        changed_at=NOW,
    )
    found = weights.shed(m)
    assert (None if found is None else (found.active, found.pending)) == expected
    held = weights.decide(m, POLICY, now=NOW)
    assert (held.active, held.pending) == (expected or (70, 30))


def test_traffic_without_ready_capacity_stays_with_a_reason() -> None:
    m = Migration(
        direction=Direction.FORWARD,
        active=replace(ACTIVE, **SICK),
        pending=replace(PENDING, **{**SICK, "unhealthy_reason": "its dashboard is silent"}),
    )
    assert weights.unservable_traffic(m) == (
        "70 percent of the traffic stay at the active cluster, which cannot carry them (its head pod is not ready), "
        "since the pending cluster cannot take them over (its dashboard is silent)"
    )
    assert weights.unservable_traffic(forward()) is None


@pytest.mark.parametrize(
    ("well", "expected"),
    [
        pytest.param(None, 30, id="it is not healthy yet"),
        pytest.param(NOW - timedelta(seconds=9), 30, id="healthy for less than the interval"),
        pytest.param(NOW - timedelta(seconds=10), 35, id="healthy for an interval"),
    ],
)
def test_a_side_that_shed_grows_an_interval_after_it_is_healthy_again(
    well: datetime | None, expected: int
) -> None:
    m = forward({"was_shed": True, "healthy_since": well})
    assert weights.decide(m, POLICY, now=NOW).pending == expected


def test_a_step_that_time_alone_allows_has_its_time() -> None:
    moved = NOW - timedelta(seconds=4)
    assert weights.decide(
        forward({"moved_at": moved}), POLICY, now=NOW
    ).requeue_at == NOW + timedelta(seconds=6)


def test_the_reason_names_what_is_missing() -> None:
    split = weights.decide(
        forward({"proven": 0, "not_ready_reason": "its head pod is not ready"}), POLICY, now=NOW
    )
    assert split.note == "the pending cluster cannot carry more yet: its head pod is not ready"


@cases(
    ("pending", "expected"),
    {
        "the floor carries the rest": ({"capacity": 80, "weight": 80, "proven": 80}, (15, 85)),
        "first what is proven": ({"capacity": 80, "weight": 70, "proven": 80}, (25, 75)),
        "both lack the same part": ({"capacity": 60, "weight": 74, "proven": 60}, (25, 75)),
        "and no more than that": ({"capacity": 60, "weight": 75, "proven": 60}, (25, 75)),
    },
)
def test_the_floor_may_carry_everything_where_capacity_may_be_missing(
    pending: dict[str, Any], expected: tuple[int, int]
) -> None:
    policy = Policy(surge=0, step=5, interval=timedelta(seconds=10), unavailable=20)
    active = replace(ACTIVE, weight=100 - pending["weight"])
    split = weights.decide(forward(pending, active=active), policy, now=NOW)
    assert (split.active, split.pending) == expected


HALF: dict[str, Any] = {"sustainable": 0, "surviving": 60, "ready": 0, "unhealthy_reason": "lost"}
"""Facts of a cluster in which one application has nothing left and another one carries 60
percent."""
RESCUE: dict[str, Any] = {"capacity": 100, "ready": 100, "rescue": 100}


@cases(
    ("standing", "active", "expected"),
    {
        "a proven version takes over": (Standing.PROVEN, HALF, (0, 100)),
        "an unproven one gets what no application carries": (Standing.UNPROVEN, HALF, (60, 40)),
        "one that failed gets nothing": (Standing.FAILED, HALF, None),
        "unless nothing else answers": (Standing.UNPROVEN, SICK, (0, 100)),
        "even if it failed": (Standing.FAILED, SICK, (0, 100)),
    },
)
def test_traffic_that_a_version_gets_for_the_health_of_the_active_cluster_depends_on_its_standing(
    standing: Standing, active: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    side = weights.withhold(replace(ACTIVE, **active), standing, "the gate has not passed")
    m = forward(RESCUE, active=side, standing=standing, distrust="the gate has not passed")
    found = weights.shed(m)
    assert (None if found is None else (found.active, found.pending)) == expected
    if active is HALF and standing is not Standing.PROVEN:
        assert "since the gate has not passed" in str(weights.unservable_traffic(m))
    elif found is not None and standing is not Standing.PROVEN:
        assert "although the gate has not passed" in found.note


def test_the_way_back_needs_no_standing() -> None:
    m = forward({"sustainable": 0, "unhealthy_reason": "lost"}, standing=Standing.FAILED)
    assert weights.shed(m) is not None
