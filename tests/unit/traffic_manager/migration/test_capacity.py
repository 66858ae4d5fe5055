"""How much capacity either cluster has; spec rayservice §8.3, §8.10."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.upgrade.controls import Policy
from traffic_manager.migration import capacity
from traffic_manager.migration.state import ClusterState, Direction, Migration

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_side(amount: int, weight: int, **fields: Any) -> ClusterState:
    side = ClusterState(
        capacity=amount, weight=weight, proven=amount, reported=amount, ready=amount
    )
    return msgspec.structs.replace(side, **fields)


def percents() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 20, 50, 80, 99, 100]) | st.integers(0, 100)


def forward(active: ClusterState, pending: ClusterState, **fields: Any) -> Migration:
    return Migration(direction=Direction.FORWARD, active=active, pending=pending, **fields)


def back(active: ClusterState, pending: ClusterState, **fields: Any) -> Migration:
    return Migration(direction=Direction.BACK, active=active, pending=pending, **fields)


def a_policy(surge: int) -> Policy:
    return Policy(surge=surge, step=min(5, surge), interval=timedelta(seconds=10))


@pytest.mark.parametrize(
    ("migration", "surge", "expected"),
    [
        pytest.param(
            forward(a_side(100, 100), a_side(0, 0)), 20, (100, 20), id="the new cluster surges"
        ),
        pytest.param(
            forward(a_side(100, 95), a_side(20, 5)), 20, (100, 20), id="traffic is still moving"
        ),
        pytest.param(
            forward(a_side(100, 80), a_side(20, 20)), 20, (80, 20), id="the old one makes room"
        ),
        pytest.param(
            forward(a_side(80, 80), a_side(20, 20)), 20, (80, 40), id="the new one takes it"
        ),
        pytest.param(
            forward(a_side(70, 20), a_side(80, 80)),
            30,
            (40, 80),
            id="down by the surge (70 and 30 give 40)",
        ),
        pytest.param(
            forward(a_side(10, 10), a_side(90, 90)), 30, (10, 100), id="never more than 100"
        ),
        pytest.param(
            forward(a_side(10, 0), a_side(100, 100)), 30, (0, 100), id="never less than 0"
        ),
        pytest.param(
            forward(a_side(100, 95), a_side(5, 5)), 20, (95, 5), id="never below the weight"
        ),
        pytest.param(
            forward(a_side(80, 100), a_side(0, 0)),
            20,
            (100, 0),
            id="what lost its partner gets it back",
        ),
        pytest.param(
            forward(a_side(95, 95), a_side(5, 5)),
            20,
            (95, 25),
            id="from an odd start, up to the bound",
        ),
        pytest.param(forward(a_side(100, 100), a_side(0, 0)), 0, (100, 0), id="no surge, no move"),
        pytest.param(
            forward(a_side(100, 100), a_side(0, 0), gateway_problem="is not Programmed"),
            20,
            (100, 0),
            id="no Gateway",
        ),
        pytest.param(
            forward(a_side(100, 80), a_side(20, 20), route_problem="is not accepted yet"),
            20,
            (100, 20),
            id="the last weights are not in force",
        ),
        pytest.param(
            forward(a_side(100, 80), a_side(20, 20), pause="paused"), 20, (100, 20), id="a pause"
        ),
        pytest.param(
            forward(a_side(100, 80), a_side(20, 20, proven=0)),
            20,
            (100, 20),
            id="the new one does not carry its share",
        ),
        pytest.param(
            forward(a_side(80, 80), a_side(20, 20, reported=0)),
            20,
            (80, 20),
            id="the last capacity is not in force",
        ),
        pytest.param(
            forward(a_side(80, 80), a_side(40, 20, sustainable=0)),
            20,
            (100, 40),
            id="active takes over from a sick one",
        ),
        pytest.param(
            forward(
                a_side(60, 50),
                a_side(60, 50, sustainable=0, has_failed_gate=True),
                pause="a gate failed",
            ),
            20,
            (60, 60),
            id="a cluster that failed a gate still holds its capacity",
        ),
        pytest.param(
            forward(
                a_side(60, 60),
                a_side(40, 40, sustainable=0, has_failed_gate=True),
                pause="a gate failed",
            ),
            20,
            (80, 40),
            id="beside it active grows as far as the surge allows",
        ),
        pytest.param(
            forward(a_side(30, 30, sustainable=0), a_side(70, 70), pause="paused"),
            20,
            (30, 100),
            id="and the other way",
        ),
        pytest.param(
            back(a_side(30, 30, sustainable=0), a_side(70, 70)),
            20,
            (30, 100),
            id="in a rollback, too",
        ),
        pytest.param(
            forward(a_side(80, 80, sustainable=60), a_side(40, 20)),
            20,
            (80, 40),
            id="what a partly sick one has counts",
        ),
        pytest.param(
            forward(
                a_side(100, 50), a_side(0, 50), gateway_problem="is not Programmed", pause="paused"
            ),
            20,
            (100, 50),
            id="a guard waits for nothing",
        ),
        pytest.param(
            back(a_side(80, 80), a_side(40, 20)), 20, (100, 20), id="back: down and up in one step"
        ),
        pytest.param(
            back(a_side(80, 70), a_side(40, 30)), 20, (80, 40), id="back: traffic is still moving"
        ),
        pytest.param(back(a_side(100, 100), a_side(20, 0)), 20, (100, 0), id="back: the end"),
        pytest.param(
            back(a_side(10, 3), a_side(100, 97)), 30, (30, 100), id="back: the old one grows first"
        ),
        pytest.param(
            back(a_side(30, 30), a_side(100, 70)), 30, (60, 70), id="back: never below the weight"
        ),
        pytest.param(
            back(a_side(80, 80), a_side(40, 20, is_alive=False)),
            20,
            (100, 40),
            id="back: a dead cluster has no capacity",
        ),
        pytest.param(
            back(a_side(40, 40), a_side(60, 60)),
            0,
            (100, 60),
            id="back: without surge, all at once",
        ),
    ],
)
def test_the_capacities_that_should_hold(
    migration: Migration, surge: int, expected: tuple[int, int]
) -> None:
    split = capacity.decide(migration, a_policy(surge), now=NOW)
    assert (split.active, split.pending) == expected
    assert split.note


def test_two_visible_changes_are_a_moment_apart() -> None:
    migration = forward(a_side(80, 80), a_side(20, 20), changed_at=NOW - timedelta(seconds=0.25))
    split = capacity.decide(migration, a_policy(20), now=NOW)
    assert (split.active, split.pending, split.requeue_at) == (
        80,
        20,
        NOW + timedelta(seconds=0.75),
    )


BEHIND = "is not accepted yet"
SENT = a_side(50, 0, sent=50)
"""A cluster without traffic any more, by a route that no Gateway has accepted yet."""


@pytest.mark.parametrize(
    "surge",
    [pytest.param(50, id="with a surge"), pytest.param(0, id="with options that allow no step")],
)
@pytest.mark.parametrize("waited", [1, 11, 3600])
def test_no_cluster_shrinks_below_what_the_accepted_route_sends_however_long_that_lasts(
    surge: int, waited: int
) -> None:
    held = back(
        a_side(100, 100),
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
        pytest.param(50, a_side(60, 60), (50, 60), id="it gets what it is still sent"),
        pytest.param(0, a_side(60, 60), (40, 60), id="as far as the surge allows"),
    ],
)
def test_a_cluster_with_a_withdrawn_allowance_grows_to_what_the_accepted_route_sends(
    surge: int, pending: ClusterState, expected: tuple[int, int]
) -> None:
    held = forward(a_side(40, 40, sent=50), pending, lag=BEHIND, route_problem=BEHIND)
    split = capacity.decide(held, a_policy(surge), now=NOW)
    assert (split.active, split.pending) == expected


def test_a_gateway_that_is_not_ready_asks_for_no_more_capacity() -> None:
    held = forward(
        a_side(40, 40, sent=50), a_side(60, 60), lag=BEHIND, gateway_problem="is not Programmed"
    )
    assert capacity.guard(held, a_policy(50)) is None


def test_a_clock_that_jumps_forward_skips_no_wait_for_a_gateway() -> None:
    held = back(a_side(100, 100), SENT, lag=BEHIND, route_problem=BEHIND, changed_at=NOW)
    assert capacity.decide(held, a_policy(20), now=NOW + timedelta(days=1)).pending == 50


@pytest.mark.parametrize(("waited", "expected"), [(9, 50), (10, 0)])
def test_a_rollback_waits_ten_seconds_for_a_gateway_that_reports_itself_not_ready(
    waited: int, expected: int
) -> None:
    changed_at = NOW - timedelta(seconds=waited)
    held = back(
        a_side(100, 100),
        SENT,
        lag=BEHIND,
        gateway_problem="is not Programmed",
        changed_at=changed_at,
    )
    split = capacity.decide(held, a_policy(50), now=NOW)
    assert split.pending == expected
    assert split.requeue_at == (NOW + timedelta(seconds=1) if waited == 9 else None)


@pytest.mark.parametrize(
    ("migration", "surge", "expected"),
    [
        pytest.param(
            forward(a_side(100, 100), a_side(0, 0)), 0, (80, 0), id="the old one makes room first"
        ),
        pytest.param(
            forward(a_side(80, 100), a_side(0, 0)), 0, (80, 20), id="the new one takes it"
        ),
        pytest.param(
            forward(a_side(80, 100), a_side(20, 0, proven=0)),
            0,
            (80, 20),
            id="never below the floor",
        ),
        pytest.param(
            forward(a_side(80, 80), a_side(20, 20)),
            0,
            (80, 20),
            id="traffic moves on the allowance first",
        ),
        pytest.param(forward(a_side(80, 75), a_side(20, 25)), 0, (60, 20), id="and so on"),
        pytest.param(
            forward(a_side(75, 25), a_side(75, 75)),
            75,
            (20, 75),
            id="the allowance is shared in proportion to traffic",
        ),
        pytest.param(
            forward(a_side(20, 20), a_side(80, 80)),
            0,
            (20, 80),
            id="the last of the traffic goes first",
        ),
        pytest.param(
            forward(a_side(20, 0), a_side(80, 100)), 0, (0, 80), id="then the old one goes"
        ),
        pytest.param(
            forward(a_side(0, 0), a_side(80, 100)), 0, (0, 100), id="and the new one is whole"
        ),
        pytest.param(
            forward(a_side(100, 80), a_side(20, 20)), 20, (64, 20), id="with a surge, both"
        ),
        pytest.param(
            forward(a_side(100, 100), a_side(20, 0, proven=0)),
            20,
            (80, 20),
            id="a surge that finds no room takes some",
        ),
        pytest.param(
            back(a_side(80, 80), a_side(20, 20)),
            0,
            (80, 20),
            id="back: the last of the traffic goes first",
        ),
        pytest.param(
            back(a_side(60, 75), a_side(40, 25)), 0, (80, 20), id="back: down and up in one step"
        ),
    ],
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
        a_side(
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
