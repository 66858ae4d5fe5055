"""The capacity of each cluster; spec rayservice §8.3, §8.10."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from support.tables import cases
from traffic_manager.migration import capacity
from traffic_manager.migration.state import ClusterState, Migration

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def side(amount: int, weight: int, **fields: Any) -> ClusterState:
    same = dict.fromkeys(("capacity", "proven", "reported", "ready"), amount)
    values: dict[str, Any] = {**same, "weight": weight, **fields}
    return ClusterState(**values)


def percents() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 20, 50, 80, 99, 100]) | st.integers(0, 100)


def forward(active: ClusterState, pending: ClusterState, **fields: Any) -> Migration:
    return Migration(direction=Direction.FORWARD, active=active, pending=pending, **fields)


def back(active: ClusterState, pending: ClusterState, **fields: Any) -> Migration:
    return Migration(direction=Direction.BACK, active=active, pending=pending, **fields)


def a_policy(surge: int) -> Policy:
    return Policy(surge=surge, step=min(5, surge), interval=timedelta(seconds=10))


@cases(
    ("migration", "surge", "expected"),
    {
        "the new cluster surges": (forward(side(100, 100), side(0, 0)), 20, (100, 20)),
        "traffic is still moving": (forward(side(100, 95), side(20, 5)), 20, (100, 20)),
        "the old one makes room": (forward(side(100, 80), side(20, 20)), 20, (80, 20)),
        "the new one takes it": (forward(side(80, 80), side(20, 20)), 20, (80, 40)),
        "down by the surge (70 and 30 give 40)": (
            forward(side(70, 20), side(80, 80)),
            30,
            (40, 80),
        ),
        "never more than 100": (forward(side(10, 10), side(90, 90)), 30, (10, 100)),
        "never less than 0": (forward(side(10, 0), side(100, 100)), 30, (0, 100)),
        "never below the weight": (forward(side(100, 95), side(5, 5)), 20, (95, 5)),
        "what lost its partner gets it back": (forward(side(80, 100), side(0, 0)), 20, (100, 0)),
        "from an odd start, up to the bound": (forward(side(95, 95), side(5, 5)), 20, (95, 25)),
        "no surge, no move": (forward(side(100, 100), side(0, 0)), 0, (100, 0)),
        "no Gateway": (
            forward(side(100, 100), side(0, 0), gateway_problem="is not Programmed"),
            20,
            (100, 0),
        ),
        "the last weights are not in force": (
            forward(side(100, 80), side(20, 20), route_problem="is not accepted yet"),
            20,
            (100, 20),
        ),
        "a pause": (forward(side(100, 80), side(20, 20), pause="paused"), 20, (100, 20)),
        "the new one does not carry its share": (
            forward(side(100, 80), side(20, 20, proven=0)),
            20,
            (100, 20),
        ),
        "the last capacity is not in force": (
            forward(side(80, 80), side(20, 20, reported=0)),
            20,
            (80, 20),
        ),
        "active takes over from a sick one": (
            forward(side(80, 80), side(40, 20, sustainable=0)),
            20,
            (100, 40),
        ),
        "a cluster that failed a gate still holds its capacity": (
            forward(
                side(60, 50),
                side(60, 50, sustainable=0, has_failed_gate=True),
                pause="a gate failed",
            ),
            20,
            (60, 60),
        ),
        "beside it active grows as far as the surge allows": (
            forward(
                side(60, 60),
                side(40, 40, sustainable=0, has_failed_gate=True),
                pause="a gate failed",
            ),
            20,
            (80, 40),
        ),
        "and the other way": (
            forward(side(30, 30, sustainable=0), side(70, 70), pause="paused"),
            20,
            (30, 100),
        ),
        "in a rollback, too": (back(side(30, 30, sustainable=0), side(70, 70)), 20, (30, 100)),
        "what a partly sick one has counts": (
            forward(side(80, 80, sustainable=60), side(40, 20)),
            20,
            (80, 40),
        ),
        "a guard waits for nothing": (
            forward(
                side(100, 50), side(0, 50), gateway_problem="is not Programmed", pause="paused"
            ),
            20,
            (100, 50),
        ),
        "back: down and up in one step": (back(side(80, 80), side(40, 20)), 20, (100, 20)),
        "back: traffic is still moving": (back(side(80, 70), side(40, 30)), 20, (80, 40)),
        "back: the end": (back(side(100, 100), side(20, 0)), 20, (100, 0)),
        "back: the old one grows first": (back(side(10, 3), side(100, 97)), 30, (30, 100)),
        "back: never below the weight": (back(side(30, 30), side(100, 70)), 30, (60, 70)),
        "back: a dead cluster has no capacity": (
            back(side(80, 80), side(40, 20, is_alive=False)),
            20,
            (100, 40),
        ),
        "back: without surge, all at once": (back(side(40, 40), side(60, 60)), 0, (100, 60)),
    },
)
def test_the_capacities_that_should_hold(
    migration: Migration, surge: int, expected: tuple[int, int]
) -> None:
    split = capacity.decide(migration, a_policy(surge), now=NOW)
    assert (split.active, split.pending) == expected
    assert split.note


def test_two_visible_changes_are_a_moment_apart() -> None:
    migration = forward(side(80, 80), side(20, 20), changed_at=NOW - timedelta(seconds=0.25))
    split = capacity.decide(migration, a_policy(20), now=NOW)
    assert (split.active, split.pending, split.requeue_at) == (
        80,
        20,
        NOW + timedelta(seconds=0.75),
    )


BEHIND = "is not accepted yet"
SENT = side(50, 0, sent=50)
"""A cluster whose traffic a new route has removed, but no Gateway has accepted that route yet."""


@pytest.mark.parametrize(
    "surge",
    [pytest.param(50, id="with a surge"), pytest.param(0, id="with options that allow no step")],
)
@pytest.mark.parametrize("waited", [1, 11, 3600])
def test_no_cluster_shrinks_below_what_the_accepted_route_sends_however_long_that_lasts(
    surge: int, waited: int
) -> None:
    held = back(
        side(100, 100),
        SENT,
        lag=BEHIND,
        route_problem=BEHIND,
        changed_at=NOW - timedelta(seconds=waited),
    )
    split = capacity.decide(held, a_policy(surge), now=NOW)
    assert (split.active, split.pending) == (100, 50)
    followed = msgspec.structs.replace(held, lag=None, route_problem=None)
    assert capacity.decide(followed, a_policy(surge), now=NOW).pending == 0


@pytest.mark.parametrize(
    ("surge", "pending", "expected"),
    [
        pytest.param(50, side(60, 60), (50, 60), id="it gets what it is still sent"),
        pytest.param(0, side(60, 60), (40, 60), id="as far as the surge allows"),
    ],
)
def test_a_cluster_with_a_withdrawn_allowance_grows_to_what_the_accepted_route_sends(
    surge: int, pending: ClusterState, expected: tuple[int, int]
) -> None:
    held = forward(side(40, 40, sent=50), pending, lag=BEHIND, route_problem=BEHIND)
    split = capacity.decide(held, a_policy(surge), now=NOW)
    assert (split.active, split.pending) == expected


def test_a_gateway_that_is_not_ready_asks_for_no_more_capacity() -> None:
    held = forward(
        side(40, 40, sent=50), side(60, 60), lag=BEHIND, gateway_problem="is not Programmed"
    )
    assert capacity.guard(held, a_policy(50)) is None


def test_a_clock_that_jumps_forward_skips_no_wait_for_a_gateway() -> None:
    held = back(side(100, 100), SENT, lag=BEHIND, route_problem=BEHIND, changed_at=NOW)
    assert capacity.decide(held, a_policy(20), now=NOW + timedelta(days=1)).pending == 50


@pytest.mark.parametrize(("waited", "expected"), [(9, 50), (10, 0)])
def test_a_rollback_waits_ten_seconds_for_a_gateway_that_reports_itself_not_ready(
    waited: int, expected: int
) -> None:
    changed_at = NOW - timedelta(seconds=waited)
    held = back(
        side(100, 100), SENT, lag=BEHIND, gateway_problem="is not Programmed", changed_at=changed_at
    )
    split = capacity.decide(held, a_policy(50), now=NOW)
    assert split.pending == expected
    assert split.requeue_at == (NOW + timedelta(seconds=1) if waited == 9 else None)


@cases(
    ("migration", "surge", "expected"),
    {
        "the old one makes room first": (forward(side(100, 100), side(0, 0)), 0, (80, 0)),
        "the new one takes it": (forward(side(80, 100), side(0, 0)), 0, (80, 20)),
        "never below the floor": (forward(side(80, 100), side(20, 0, proven=0)), 0, (80, 20)),
        "traffic moves on the allowance first": (forward(side(80, 80), side(20, 20)), 0, (80, 20)),
        "and so on": (forward(side(80, 75), side(20, 25)), 0, (60, 20)),
        "the allowance is shared in proportion to traffic": (
            forward(side(75, 25), side(75, 75)),
            75,
            (20, 75),
        ),
        "the last of the traffic goes first": (forward(side(20, 20), side(80, 80)), 0, (20, 80)),
        "then the old one goes": (forward(side(20, 0), side(80, 100)), 0, (0, 80)),
        "and the new one is whole": (forward(side(0, 0), side(80, 100)), 0, (0, 100)),
        "with a surge, both": (forward(side(100, 80), side(20, 20)), 20, (64, 20)),
        "a surge that finds no room takes some": (
            forward(side(100, 100), side(20, 0, proven=0)),
            20,
            (80, 20),
        ),
        "back: the last of the traffic goes first": (back(side(80, 80), side(20, 20)), 0, (80, 20)),
        "back: down and up in one step": (back(side(60, 75), side(40, 25)), 0, (80, 20)),
    },
)
def test_capacity_may_be_missing_where_the_user_allows_it(
    migration: Migration, surge: int, expected: tuple[int, int]
) -> None:
    policy = msgspec.structs.replace(a_policy(surge), step=5, unavailable=20)
    split = capacity.decide(migration, policy, now=NOW)
    assert (split.active, split.pending) == expected


@given(
    direction=st.sampled_from(Direction),
    policy=st.builds(
        Policy,
        surge=percents(),
        step=percents(),
        interval=st.sampled_from([timedelta(seconds=1)]),
        unavailable=st.integers(0, 99),
    ),
    weight=percents(),
    capacities=st.tuples(percents(), percents()),
    carried=st.tuples(percents(), percents()),
    proven=st.tuples(percents(), percents()),
    is_behind=st.booleans(),
)
def test_no_decision_takes_back_what_the_last_one_gave(
    *,
    direction: Direction,
    policy: Policy,
    weight: int,
    capacities: tuple[int, int],
    carried: tuple[int, int],
    proven: tuple[int, int],
    is_behind: bool,
) -> None:
    """While nothing but the capacities changes, they come to rest: a side that is raised for its traffic is not lowered at once."""
    pairs = zip(capacities, (100 - weight, weight), carried, proven, strict=True)
    sides = [
        side(
            amount,
            share,
            sustainable=most,
            ready=amount,
            proven=min(amount, most_proven),
            sent=100 if is_behind else None,
        )
        for amount, share, most, most_proven in pairs
    ]
    m = Migration(
        direction=direction,
        active=sides[0],
        pending=sides[1],
        lag="is behind" if is_behind else None,
    )
    seen = {capacities}
    for _ in range(300):
        split = capacity.decide(m, policy, now=NOW)
        if (split.active, split.pending) == (m.active.capacity, m.pending.capacity):
            return
        assert (split.active, split.pending) not in seen, f"{split} again, of {sorted(seen)}"
        seen.add((split.active, split.pending))
        changed = [
            msgspec.structs.replace(
                each,
                capacity=amount,
                reported=amount,
                proven=min(amount, most_proven),
                ready=amount,
            )
            for each, amount, most_proven in zip(
                (m.active, m.pending), (split.active, split.pending), proven, strict=True
            )
        ]
        m = msgspec.structs.replace(m, active=changed[0], pending=changed[1])
