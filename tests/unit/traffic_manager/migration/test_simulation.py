"""The state machine against a model of Ray, of the Gateway and of the status, with what must hold at every turn.

Everybody is slow in a seeded random order: capacities take their time to run, the Gateway to follow, the status to show the last
change. The user may revert the spec at any moment, and may change their mind again.
"""

import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from traffic_manager.migration import step
from traffic_manager.migration.state import ClusterState, Migration, is_hurried

START = datetime(2026, 1, 1, tzinfo=UTC)
TURN = timedelta(seconds=0.5)
NEW = ClusterState(capacity=0, weight=0, moved_at=START, reported=0)
OLD = ClusterState(capacity=100, weight=100, moved_at=START, proven=100, reported=100)


class Slowness(msgspec.Struct):
    """Number of turns that others take, drawn anew for each of their answers."""

    rng: random.Random
    most: int = 0

    def draw(self) -> int:
        return self.rng.randint(0, self.most)


class Rig:
    """One upgrade with the models of everything around it."""

    def __init__(self, policy: Policy, slowness: Slowness, *, room: int = 1000) -> None:
        self.policy = policy
        self.room = room
        """Percentage of capacity that the nodes have room for, both clusters together."""
        self._placed = {"active": 100, "pending": 0}
        """Percentage of capacity of each cluster that runs on the nodes."""
        self.now = START
        self.migration = Migration(direction=Direction.FORWARD, active=OLD, pending=NEW)
        self._slowness = slowness
        self._serve = {"active": 0, "pending": 0}
        """Turns until a cluster runs its target capacity."""
        self._route = 0
        self._status = 0
        self._well: dict[str, datetime] = {}
        self.is_pending_dead = False
        self.is_bounded = True
        """Whether the surge limit must hold; after the loss of a cluster both may have full
        capacity for a while."""
        self.steps = 0

    def turn(self) -> None:
        """Let all models act once, the state machine last."""
        self.now += TURN
        self._others()
        decided = step.decide(self.migration, self.policy, now=self.now)
        assert decided == step.decide(self.migration, self.policy, now=self.now), (
            "a plan made twice is the same plan"
        )
        old = self.migration
        if decided.weights is not None:
            self._weigh(decided.weights.active, decided.weights.pending, is_shed=decided.is_shed)
        if decided.capacities is not None:
            self._scale(decided.capacities.active, decided.capacities.pending)
        if self.migration != old:
            self.steps += 1
            self._check(old)

    def run(self, *, until: tuple[tuple[int, int], tuple[int, int]], turns: int = 20_000) -> None:
        """Run until capacities and weights have these values."""
        for _ in range(turns):
            if (self.capacities, self.weights) == until:
                return
            self.turn()
        msg = f"stuck at capacities {self.capacities}, weights {self.weights} with {self.policy}"
        raise AssertionError(msg)

    @property
    def capacities(self) -> tuple[int, int]:
        return self.migration.active.capacity, self.migration.pending.capacity

    @property
    def weights(self) -> tuple[int, int]:
        return self.migration.active.weight, self.migration.pending.weight

    def go(self, direction: Direction) -> None:
        """Let the user change the direction of the upgrade."""
        self.migration = msgspec.structs.replace(self.migration, direction=direction)

    def _others(self) -> None:
        self._route, self._status = max(0, self._route - 1), max(0, self._status - 1)
        sides: dict[str, ClusterState] = {}
        for name, held in (("active", self.migration.active), ("pending", self.migration.pending)):
            self._serve[name] = max(0, self._serve[name] - 1)
            is_dead = name == "pending" and self.is_pending_dead
            runs = self._serve[name] == 0 and not is_dead
            if self._serve[name] == 0:
                other = self._placed["pending" if name == "active" else "active"]
                self._placed[name] = min(held.capacity, max(self.room - other, 0))
            sides[name] = msgspec.structs.replace(
                held,
                proven=min(held.capacity, self._placed[name]) if runs else 0,
                reported=None if is_dead else held.capacity,
                is_alive=not is_dead,
                sustainable=0 if is_dead else 100,
                ready=min(held.capacity, self._placed[name]) if runs else 0,
                healthy_since=self._well.setdefault(name, self.now)
                if not is_dead
                else self._well.pop(name, None) and None,
            )
        self.migration = msgspec.structs.replace(
            self.migration,
            active=sides["active"],
            pending=sides["pending"],
            route_problem="is not accepted yet" if self._route else None,
            lag="is not accepted yet" if self._route else None,
            is_mirrored=self._status == 0,
        )

    def _weigh(self, active: int, pending: int, *, is_shed: bool) -> None:
        is_followed = self._route == 0
        self._route, self._status = self._slowness.draw(), self._slowness.draw()

        def moved(side: ClusterState, weight: int) -> ClusterState:
            most = max(weight, side.weight if is_followed else side.sent or 0)
            was_shed = (is_shed or side.was_shed) if weight < side.weight else False
            return msgspec.structs.replace(
                side, weight=weight, moved_at=self.now, sent=most, was_shed=was_shed
            )

        self.migration = msgspec.structs.replace(
            self.migration,
            active=moved(self.migration.active, active),
            pending=moved(self.migration.pending, pending),
            changed_at=self.now,
        )

    def _scale(self, active: int, pending: int) -> None:
        self._status = self._slowness.draw()
        replace = msgspec.structs.replace
        sides = {
            "active": (self.migration.active, active),
            "pending": (self.migration.pending, pending),
        }
        for name, (held, amount) in sides.items():
            if held.capacity != amount:
                self._serve[name] = 1 + self._slowness.draw()
        self.migration = replace(
            self.migration,
            active=replace(self.migration.active, capacity=active),
            pending=replace(self.migration.pending, capacity=pending),
            changed_at=self.now,
        )

    def _check(self, old: Migration) -> None:
        """Check a change against the rules."""
        m = self.migration
        assert m.active.weight + m.pending.weight == 100
        missing = self.policy.unavailable
        for side, before in ((m.active, old.active), (m.pending, old.pending)):
            sent = side.weight if self._route == 0 else max(side.weight, side.sent or 0)
            is_enough = side.capacity >= self.policy.needed(sent) or side.sustainable == 0
            assert is_enough or side.capacity >= before.capacity, (
                f"{side} shrinks below what the Gateway sends"
            )
        if not is_hurried(m, self.policy):
            assert sum(self.capacities) >= min(
                100 - missing, sum((old.active.capacity, old.pending.capacity))
            )
        for name, new, before in (
            ("active", m.active, old.active),
            ("pending", m.pending, old.pending),
        ):
            if new.weight > before.weight:
                most = self.policy.carried(before.proven)
                assert new.weight <= most, f"{name} gets more than it was seen to carry"
        assert m.active.capacity + m.pending.capacity > 0
        if self.is_bounded and not self.is_pending_dead and not is_hurried(m, self.policy):
            assert sum(self.capacities) <= 100 + self.policy.surge, (
                f"{self.capacities} exceed the surge"
            )
        if m.direction is Direction.FORWARD and m.active.capacity == 0:
            assert m.active.weight == 0


MOVED = ((0, 100), (0, 100))
BACK = ((100, 0), (100, 0))
GRID = [
    (surge, size)
    for surge in (1, 7, 20, 30, 50, 60, 100)
    for size in (1, 5, 7, 20, 100)
    if size <= surge
]


def a_policy(surge: int, size: int, seconds: int = 1) -> Policy:
    return Policy(surge=surge, step=size, interval=timedelta(seconds=seconds))


@pytest.mark.parametrize(("surge", "size"), GRID)
@pytest.mark.parametrize("most", [0, 6])
def test_an_upgrade_ends_and_so_does_a_rollback(surge: int, size: int, most: int) -> None:
    rig = Rig(a_policy(surge, size), Slowness(random.Random(f"{surge} {size}"), most))
    rig.run(until=MOVED)
    rig.go(Direction.BACK)
    rig.run(until=BACK)


@settings(max_examples=60, deadline=None)
@given(
    surge=st.integers(1, 100),
    share=st.floats(0.01, 1.0),
    seconds=st.integers(1, 5),
    minds=st.lists(st.integers(1, 120), max_size=4),
    seed=st.integers(0, 2**16),
)
def test_the_user_may_change_their_mind_at_any_moment(
    surge: int, share: float, seconds: int, minds: list[int], seed: int
) -> None:
    rig = Rig(
        a_policy(surge, max(1, round(surge * share)), seconds), Slowness(random.Random(seed), 5)
    )
    directions = [Direction.BACK, Direction.FORWARD]
    for number, turns in enumerate(minds):
        for _ in range(turns):
            rig.turn()
        rig.go(directions[number % 2])
    rig.run(until=BACK if rig.migration.direction is Direction.BACK else MOVED)


@pytest.mark.parametrize("turns", range(0, 90, 7))
@pytest.mark.parametrize(("surge", "size"), [(20, 5), (30, 7), (60, 60)])
def test_a_pending_cluster_may_die_at_any_moment(surge: int, size: int, turns: int) -> None:
    rig = Rig(a_policy(surge, size), Slowness(random.Random(turns), 3))
    for _ in range(turns):
        rig.turn()
    rig.is_pending_dead = True
    rig.go(Direction.BACK)
    rig.run(until=BACK, turns=60)


@pytest.mark.parametrize("tenths", range(1, 10))
@pytest.mark.parametrize(("surge", "size"), [(20, 5), (30, 7), (60, 60)])
def test_a_sick_pending_cluster_gives_its_share_back_and_goes_on_when_it_is_well(
    surge: int, size: int, tenths: int
) -> None:
    undisturbed = Rig(a_policy(surge, size), Slowness(random.Random(tenths), 3))
    undisturbed.run(until=MOVED)
    rig = Rig(a_policy(surge, size), Slowness(random.Random(tenths), 3))
    while rig.now - START < (undisturbed.now - START) * tenths / 10:
        rig.turn()
    assert rig.migration.active.capacity > 0
    rig.is_pending_dead = True
    for _ in range(40):
        rig.turn()
    assert rig.weights == (100, 0)
    rig.is_pending_dead = False
    rig.is_bounded = False
    rig.run(until=MOVED)


@pytest.mark.parametrize(("surge", "size"), [(0, 0), (20, 0)])
def test_a_rollback_ends_with_options_that_allow_no_step(surge: int, size: int) -> None:
    rig = Rig(a_policy(20, 5), Slowness(random.Random(1)))
    for _ in range(40):
        rig.turn()
    rig.policy = a_policy(surge, size)
    rig.go(Direction.BACK)
    rig.run(until=BACK, turns=60)


@pytest.mark.parametrize(
    ("surge", "size", "missing"), [(0, 20, 20), (0, 5, 50), (0, 1, 1), (20, 5, 20), (5, 5, 30)]
)
@pytest.mark.parametrize("most", [0, 6])
def test_on_a_full_cluster_an_upgrade_ends_where_some_capacity_may_be_missing(
    surge: int, size: int, missing: int, most: int
) -> None:
    policy = msgspec.structs.replace(a_policy(surge, size), unavailable=missing)
    rig = Rig(policy, Slowness(random.Random(f"{surge} {size}"), most), room=100)
    rig.run(until=MOVED)
    rig.go(Direction.BACK)
    rig.run(until=BACK)


@pytest.mark.parametrize("turns", range(0, 150, 6))
@pytest.mark.parametrize(("surge", "missing"), [(0, 20), (0, 50), (20, 20)])
def test_on_a_full_cluster_the_user_may_change_their_mind(
    turns: int, surge: int, missing: int
) -> None:
    policy = msgspec.structs.replace(a_policy(surge, 5), unavailable=missing)
    rig = Rig(policy, Slowness(random.Random(turns), 3), room=100)
    for _ in range(turns):
        rig.turn()
    rig.go(Direction.BACK)
    rig.run(until=BACK)
