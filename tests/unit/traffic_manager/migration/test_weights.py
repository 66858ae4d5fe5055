"""How much of the traffic each cluster gets; spec rayservice §8.4, §8.10."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from common.upgrade.controls import Policy
from traffic_manager.migration import weights
from traffic_manager.migration.state import ClusterState, Direction, Migration, Standing

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
    side = msgspec.structs.replace(PENDING, **(pending or {}))
    return msgspec.structs.replace(
        Migration(direction=Direction.FORWARD, active=ACTIVE, pending=side), **fields
    )


def back(active: dict[str, Any] | None = None, pending: dict[str, Any] | None = None) -> Migration:
    return Migration(
        direction=Direction.BACK,
        active=msgspec.structs.replace(ACTIVE, **(active or {})),
        pending=msgspec.structs.replace(PENDING, **(pending or {})),
    )


@pytest.mark.parametrize(
    ("migration", "expected"),
    [
        pytest.param(forward(), (65, 35), id="a step"),
        pytest.param(forward({"weight": 38}), (60, 40), id="the capacity caps the step"),
        pytest.param(forward({"proven": 33}), (67, 33), id="what was seen to run caps the step"),
        pytest.param(
            forward({"weight": 40}), (70, 40), id="all that the capacity allows is carried"
        ),
        pytest.param(forward({"proven": 0}), (70, 30), id="nothing is proven"),
        pytest.param(forward({"proven": 30}), (70, 30), id="no more than now is proven"),
        pytest.param(
            forward({"moved_at": NOW - timedelta(seconds=9)}),
            (70, 30),
            id="the interval is not over",
        ),
        pytest.param(
            forward({"moved_at": NOW - timedelta(seconds=10)}), (65, 35), id="the interval is over"
        ),
        pytest.param(
            forward(gateway_problem="is not Programmed"),
            (70, 30),
            id="the Gateway takes no requests",
        ),
        pytest.param(
            forward(route_problem="is not accepted yet"),
            (70, 30),
            id="the last weights are not in force",
        ),
        pytest.param(forward(pause="paused"), (70, 30), id="a pause holds the way forward"),
        pytest.param(
            forward({"proven": 0, "sustainable": 0, "ready": 0}, pause="paused"),
            (80, 20),
            id="a sick cluster gives back in a pause too",
        ),
        pytest.param(
            forward({"proven": 0, "sustainable": 0, "ready": 0}),
            (80, 20),
            id="a sick cluster gives back what fits",
        ),
        pytest.param(
            forward({"weight": 0, "proven": 0, "sustainable": 0, "ready": 0}),
            (70, 0),
            id="a sick cluster without traffic gives nothing",
        ),
        pytest.param(back(), (75, 25), id="a step back"),
        pytest.param(
            back({"weight": 78}, {"weight": 22}), (80, 20), id="the capacity caps the step back"
        ),
        pytest.param(
            msgspec.structs.replace(back(), pause="paused"),
            (75, 25),
            id="a pause does not close the way back",
        ),
        pytest.param(
            back({"proven": 0}), (70, 30), id="nothing goes to an active cluster that does not run"
        ),
        pytest.param(
            back(pending={"is_alive": False}),
            (80, 20),
            id="a sick pending cluster loses it at once",
        ),
    ],
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
@pytest.mark.parametrize(
    ("active", "pending", "expected"),
    [
        pytest.param(
            SICK,
            {"capacity": 100, "proven": 100, "ready": 100, "rescue": 100},
            (0, 100),
            id="active dies, pending is whole",
        ),
        pytest.param(SICK, {}, (60, 40), id="active dies, pending takes what it can carry"),
        pytest.param({}, SICK, (80, 20), id="pending dies"),
        pytest.param(
            {"sustainable": 65, "ready": 65},
            {},
            (65, 35),
            id="a partly sick one sheds what it cannot carry",
        ),
        pytest.param(
            {"sustainable": 40, "ready": 40},
            {"ready": 33},
            (67, 33),
            id="as far as the other can carry it",
        ),
        pytest.param(
            {},
            {"sustainable": 35, "ready": 35},
            None,
            id="one that carries its share sheds nothing",
        ),
        pytest.param(SICK, SICK, None, id="where neither can carry, all stays"),
    ],
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
        active=msgspec.structs.replace(ACTIVE, **{"moved_at": NOW, **active}),
        pending=msgspec.structs.replace(PENDING, **{"moved_at": NOW, **pending}),
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
        active=msgspec.structs.replace(ACTIVE, **SICK),
        pending=msgspec.structs.replace(
            PENDING, **{**SICK, "unhealthy_reason": "its dashboard is silent"}
        ),
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


@pytest.mark.parametrize(
    ("pending", "expected"),
    [
        pytest.param(
            {"capacity": 80, "weight": 80, "proven": 80}, (15, 85), id="the floor carries the rest"
        ),
        pytest.param(
            {"capacity": 80, "weight": 70, "proven": 80}, (25, 75), id="first what is proven"
        ),
        pytest.param(
            {"capacity": 60, "weight": 74, "proven": 60}, (25, 75), id="both lack the same part"
        ),
        pytest.param(
            {"capacity": 60, "weight": 75, "proven": 60}, (25, 75), id="and no more than that"
        ),
    ],
)
def test_the_floor_may_carry_everything_where_capacity_may_be_missing(
    pending: dict[str, Any], expected: tuple[int, int]
) -> None:
    policy = Policy(surge=0, step=5, interval=timedelta(seconds=10), unavailable=20)
    active = msgspec.structs.replace(ACTIVE, weight=100 - pending["weight"])
    split = weights.decide(forward(pending, active=active), policy, now=NOW)
    assert (split.active, split.pending) == expected


HALF: dict[str, Any] = {"sustainable": 0, "surviving": 60, "ready": 0, "unhealthy_reason": "lost"}
"""One of its applications has nothing left, another one carries 60 percent."""
RESCUE: dict[str, Any] = {"capacity": 100, "ready": 100, "rescue": 100}


@pytest.mark.parametrize(
    ("standing", "active", "expected"),
    [
        pytest.param(Standing.PROVEN, HALF, (0, 100), id="a proven version takes over"),
        pytest.param(
            Standing.UNPROVEN, HALF, (60, 40), id="an unproven one gets what no application carries"
        ),
        pytest.param(Standing.FAILED, HALF, None, id="one that failed gets nothing"),
        pytest.param(Standing.UNPROVEN, SICK, (0, 100), id="unless nothing else answers"),
        pytest.param(Standing.FAILED, SICK, (0, 100), id="even if it failed"),
    ],
)
def test_traffic_that_a_version_gets_for_the_health_of_the_active_cluster_depends_on_its_standing(
    standing: Standing, active: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    side = weights.withhold(
        msgspec.structs.replace(ACTIVE, **active), standing, "the gate has not passed"
    )
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
