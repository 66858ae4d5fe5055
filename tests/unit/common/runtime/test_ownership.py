"""The owner of each partition: tables of single decisions, and invariants for replicas that come,
go and stop answering.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bus.subjects import PARTITIONS
from common.runtime import ownership
from common.runtime.ownership import (
    ALL,
    DURATION_SECONDS,
    LeaseObservation,
    Rebalance,
    ReplicaLease,
    decide,
    divide,
    format_partitions,
    observe,
    parse_partitions,
)

FIRST, REST = frozenset(range(32)), frozenset(range(32, 64))


def a_lease(
    identity: str,
    partitions: frozenset[int] = frozenset(),
    *,
    version: str = "1",
    able: bool = True,
) -> ReplicaLease:
    return ReplicaLease(
        name=f"raybus-{identity}",
        uid=f"uid-{identity}",
        version=version,
        identity=identity,
        session="s",
        partitions=partitions,
        is_readable=True,
        takes_part=able,
    )


def seen(*leases: ReplicaLease, age: float = 0.0) -> dict[str, LeaseObservation]:
    return {each.name: LeaseObservation(each, age, 0.0) for each in leases}


def test_a_single_member_takes_everything() -> None:
    assert decide("a", frozenset(), {}, takes_part=True) == Rebalance(acquire=ALL)
    assert decide("a", ALL, {}, takes_part=True) == Rebalance()


def test_nothing_is_taken_that_another_lease_names_whatever_became_of_its_holder() -> None:
    for others in (seen(a_lease("b", ALL), age=99.0), seen(a_lease("b", ALL, able=False))):
        assert decide("a", frozenset(), others, takes_part=True) == Rebalance()


def test_a_newcomer_is_given_half_and_takes_it_once_it_is_free() -> None:
    given = decide("a", ALL, seen(a_lease("b")), takes_part=True).release
    assert len(given) == 32
    assert decide("b", frozenset(), seen(a_lease("a", ALL)), takes_part=True) == Rebalance()
    assert decide("b", frozenset(), seen(a_lease("a", ALL - given)), takes_part=True) == Rebalance(
        acquire=given
    )


def test_a_member_that_is_dead_or_ends_is_not_counted() -> None:
    for other in (seen(a_lease("b"), age=DURATION_SECONDS), seen(a_lease("b", able=False))):
        assert decide("a", ALL, other, takes_part=True) == Rebalance()


def test_a_member_that_cannot_take_part_hands_all_over_or_else_keeps_it() -> None:
    assert decide("a", ALL, seen(a_lease("b")), takes_part=False) == Rebalance(release=ALL)
    assert decide("a", ALL, seen(a_lease("b", able=False)), takes_part=False) == Rebalance()


def test_a_lease_ages_while_it_does_not_change() -> None:
    found = observe({}, [a_lease("b")], now=10.0)
    found = observe(found, [a_lease("b")], now=11.0)
    found = observe(found, [a_lease("b")], now=12.5)
    assert found["raybus-b"].age == 2.5
    assert observe(found, [a_lease("b", version="2")], now=13.0)["raybus-b"].age == 0.0
    assert observe(found, [], now=13.0) == {}


def test_time_in_which_nobody_could_renew_counts_for_little() -> None:
    found = observe(observe({}, [a_lease("b")], now=0.0), [a_lease("b")], now=600.0)
    assert found["raybus-b"].remaining > 0


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        pytest.param("", frozenset[int](), id="none"),
        pytest.param("0,7,63", frozenset({0, 7, 63}), id="some"),
        pytest.param(" 1, 2 ", frozenset({1, 2}), id="written by hand"),
        pytest.param("64", None, id="no such partition"),
        pytest.param("a", None, id="unreadable"),
    ],
)
def test_what_a_lease_names(text: str, partitions: frozenset[int] | None) -> None:
    assert parse_partitions(text) == partitions
    assert partitions is None or parse_partitions(format_partitions(partitions)) == partitions


def test_what_a_successor_loads_in_a_moment_moves_together() -> None:
    (whole,) = ownership.split_into_parts(dict.fromkeys(ALL, 10))
    assert (whole.partitions, whole.seconds) == (ALL, 640 / ownership.LOADED_PER_SECOND)
    assert ownership.split_into_parts({}) == []
    assert [each.partitions for each in ownership.split_into_parts({3: 999, 5: 2, 9: 1})] == [
        {3, 5},
        {9},
    ]


@given(st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 3000)))
@settings(max_examples=100, deadline=None)
def test_parts_are_whole_disjoint_small_and_few(sizes: dict[int, int]) -> None:
    parts = ownership.split_into_parts(sizes)
    assert sorted(each for part in parts for each in part.partitions) == sorted(sizes)
    assert len(parts) <= ownership.MAX_PARTS + 1
    moment = ownership.PART_SECONDS + max(sizes.values(), default=0) / ownership.LOADED_PER_SECOND
    bound = max(
        moment, (sum(sizes.values()) / ownership.MAX_PARTS + 3000) / ownership.LOADED_PER_SECOND
    )
    assert all(part.seconds <= bound for part in parts)


def test_everything_is_held_when_the_living_hold_it() -> None:
    assert ownership.is_everything_held(FIRST, seen(a_lease("b", REST)))
    assert not ownership.is_everything_held(FIRST, seen(a_lease("b", REST), age=99.0))
    assert not ownership.is_everything_held(
        FIRST, seen(a_lease("b", REST), age=float(DURATION_SECONDS))
    )


HOLDINGS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3),
    st.frozensets(st.integers(0, PARTITIONS - 1)),
    min_size=1,
    max_size=70,
)


@pytest.mark.long
@given(HOLDINGS)
@settings(max_examples=50, deadline=None)
def test_a_share_is_whole_disjoint_and_even(holdings: dict[str, frozenset[int]]) -> None:
    shares = divide(holdings)
    assert shares.keys() == holdings.keys()
    assert sorted(each for part in shares.values() for each in part) == sorted(ALL)
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1


@given(st.integers(1, 12))
@settings(max_examples=12, deadline=None)
def test_only_what_must_moves(count: int) -> None:
    before = divide({f"r{number}": frozenset[int]() for number in range(count)})
    joined = divide({**before, "new": frozenset()})
    assert moved(before, joined) == len(joined["new"])
    left = divide(
        {name: part for name, part in before.items() if name != "r0"} or {"last": frozenset()}
    )
    assert moved(before, left) == len(before["r0"])


def moved(before: dict[str, frozenset[int]], after: dict[str, frozenset[int]]) -> int:
    return sum(len(part - before.get(name, frozenset())) for name, part in after.items())


class Model:
    """The Leases at the API server and each process's view of them; every step is one request."""

    def __init__(self) -> None:
        self.leases: dict[str, ReplicaLease] = {}
        self.holding: dict[str, frozenset[int]] = {}
        self.views: dict[str, dict[str, LeaseObservation]] = {}
        self.wishes: dict[str, frozenset[int]] = {}
        self.now = 0.0
        self.writes = 0

    def write(self, name: str, partitions: frozenset[int]) -> None:
        self.writes += 1
        self.leases[name] = a_lease(name, partitions, version=str(self.writes))

    def join(self, name: str) -> None:
        if name not in self.leases:
            self.holding[name] = frozenset()
            self.wishes[name] = frozenset()
            self.write(name, frozenset())

    def crash(self, name: str) -> None:
        self.holding.pop(name, None)

    def observe(self, name: str) -> None:
        others = [each for each in self.leases.values() if each.identity != name]
        self.views[name] = observe(self.views.get(name, {}), others, now=self.now)

    def step(self, name: str) -> None:
        """Let one process send its next request, based on its last observation."""
        if name not in self.holding:
            return
        if name not in self.leases:  # somebody deleted it
            self.holding[name] = self.wishes[name] = frozenset()
            self.write(name, frozenset())
            return
        if self.wishes[name]:  # claimed in our Lease: begin with what no other names now
            self.observe(name)
            taken = frozenset[int]().union(
                *(each.lease.partitions for each in self.views[name].values())
            )
            self.holding[name] |= self.wishes[name] - taken
            self.wishes[name] = frozenset()
            self.write(name, self.holding[name])
            return
        for each in list(self.views.get(name, {}).values()):
            if each.remaining <= 0 and self.leases.get(each.lease.identity) == each.lease:
                del self.leases[each.lease.identity]
                self.views[name].pop(each.lease.name)
        change = decide(name, self.holding[name], self.views.get(name, {}), takes_part=True)
        self.holding[name] -= change.release
        self.wishes[name] = change.acquire
        self.write(name, self.holding[name] | change.acquire)

    def check(self) -> None:
        owners = [
            each for name, part in self.holding.items() if name in self.leases for each in part
        ]
        assert len(owners) == len(set(owners)), "two that could renew hold the same partition"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "crash", "observe", "step", "step", "observe", "wait"]),
        st.sampled_from("abcd"),
    ),
    max_size=120,
)


@pytest.mark.long
@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_whatever_is_seen_late_no_two_hold_the_same_and_at_rest_all_is_held(
    steps: list[tuple[str, str]],
) -> None:
    model = Model()
    for act, name in steps:
        match act:
            case "join":
                model.join(name)
            case "crash":
                model.crash(name)
            case "observe" if name in model.holding:
                model.observe(name)
            case "step":
                model.step(name)
            case _:
                model.now += 1.0
        model.check()
    model.join("z")
    for _ in range(40):  # every replica observes and acts, until nothing changes any more
        model.now += 1.0
        for name in sorted(model.holding):
            model.observe(name)
            model.step(name)
            model.check()
    assert sorted(each for part in model.holding.values() for each in part) == sorted(ALL)
    assert max(map(len, model.holding.values())) - min(map(len, model.holding.values())) <= 1
