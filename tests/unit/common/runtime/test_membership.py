"""Replicas with their Leases in virtual time: how soon partitions move, and that no two replicas
ever work on the same one.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Set
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

import pytest

from common import errors, labels
from common.clock import Clock, SystemClock
from common.kube.resources import LEASE, Resource
from common.runtime import ownership
from common.runtime.fence import Fence
from common.runtime.membership import Hints, Membership, PartitionFeeds
from common.runtime.ownership import ALL
from common.runtime.replica_leases import ReplicaLeases, format_lease_name
from support.fakes.intercepted_kube import InterceptedKube, Send
from support.fakes.kube import FakeKube

pytestmark = pytest.mark.looptime

NAMESPACE = "raybus"
LOAD_SECONDS = 1 / 4000
"""Seconds that loading one object takes."""


def time() -> float:
    return asyncio.get_running_loop().time()


class WrongClock(SystemClock):
    """A machine with a wrong system clock."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return super().now() + self._by


class HintBroadcast:
    """Broadcasts hints to every subscription, unless it is switched off."""

    def __init__(self) -> None:
        self.is_still = False
        self._events: list[asyncio.Event] = []

    def subscribe(self) -> "HintSubscription":
        event = asyncio.Event()
        self._events.append(event)
        return HintSubscription(self, event)

    def send(self) -> None:
        for each in [] if self.is_still else self._events:
            each.set()


class HintSubscription(Hints):
    """The subscription of one replica to hints."""

    def __init__(self, hints: HintBroadcast, event: asyncio.Event) -> None:
        self._hints = hints
        self._event = event

    async def send(self) -> None:
        self._hints.send()

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._event.wait()
        self._event.clear()


class Workers(PartitionFeeds):
    """The partitions that one replica works on."""

    def __init__(self) -> None:
        self.name = "test"
        self.worked: set[int] = set()
        self.busy: set[int] = set()
        self.seconds_to_end = 0.2
        self.objects = 1
        """Number of objects in each partition."""
        self._loaded_at: dict[int, float] = {}

    @property
    def served(self) -> set[int]:
        """The partitions whose state is loaded."""
        return {each for each in self.worked if self._loaded_at[each] <= time()}

    def acquire(self, partitions: Set[int]) -> None:
        self.worked |= partitions
        loaded_at = (
            max(time(), *self._loaded_at.values(), 0.0)
            + len(partitions) * self.objects * LOAD_SECONDS
        )
        self._loaded_at |= dict.fromkeys(partitions, loaded_at)

    def sizes(self, partitions: Set[int]) -> Mapping[int, int]:
        return dict.fromkeys(partitions, self.objects)

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        return frozenset(partitions & self.busy)

    async def release(self, partitions: Set[int], *, grace_seconds: float) -> None:
        if partitions & self.busy:
            await asyncio.sleep(min(grace_seconds, self.seconds_to_end))
        self.busy -= partitions
        self.worked -= partitions


class LossyKube(InterceptedKube):
    """An API server behind an unreliable connection that loses requests, and answers to requests
    that were carried out.
    """

    def __init__(self, seed: int = 0) -> None:
        self.fake = FakeKube()
        super().__init__(self.fake)
        self._dice = random.Random(seed)
        self.losses = 0.0
        self.replaced: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """By object: an event that is set when the object was replaced, before the answer is
        sent."""

    async def intercept(self, verb: str, resource: Resource, name: str, send: Send) -> bytes:
        if verb in {"get", "patch"}:
            return await send()
        await asyncio.sleep(0.002 + self._dice.random() * 0.01)
        if self._dice.random() < self.losses:
            raise errors.Unavailable("the request was lost")
        answer = await send()
        if verb == "replace":
            self.replaced[name].set()
        await asyncio.sleep(self._dice.random() * 0.01)
        if self._dice.random() < self.losses:
            raise errors.Unavailable("the answer was lost")
        return answer


class Replica:
    """One process: it can end gracefully, die, freeze and resume."""

    def __init__(self, fleet: "Fleet", identity: str, session: str, clock: Clock) -> None:
        self.identity = identity
        self.workers = Workers()
        self.fence = Fence(time)
        self.is_able = True
        leases = ReplicaLeases(
            fleet.kube,
            clock,
            namespace=NAMESPACE,
            service="test",
            identity=identity,
            session=session,
        )
        self.membership = Membership(
            leases,
            self.workers,
            fleet.hints.subscribe(),
            fence=self.fence,
            is_able=lambda: self.is_able,
        )
        self._town = fleet
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run the replica, or resume it after a freeze."""
        if (
            self._running is not None
            and not self._running.cancelling()
            and not self._running.done()
        ):
            return
        self._running = self._town.group.create_task(self.membership.run())

    def freeze(self) -> None:
        """Stop the replica where it is; its state stays."""
        assert self._running is not None
        self._running.cancel()

    async def end(self) -> None:
        """End the replica as at SIGTERM."""
        self.freeze()
        await self.membership.hand_over_all()
        self._town.replicas.remove(self)

    def die(self) -> None:
        """End the replica as at kill -9."""
        self.freeze()
        self.fence.close()
        self.workers.worked.clear()
        self._town.replicas.remove(self)


class Fleet:
    """All replicas of a service."""

    def __init__(self, group: asyncio.TaskGroup, kube: LossyKube) -> None:
        self.group = group
        self.kube = kube
        self.hints = HintBroadcast()
        self.replicas: list[Replica] = []
        self.watching = group.create_task(self._watch())

    def add(self, identity: str, session: str = "1", clock: Clock | None = None) -> Replica:
        replica = Replica(self, identity, session, clock or SystemClock())
        self.replicas.append(replica)
        replica.start()
        return replica

    def parts(self) -> list[int]:
        """Return the number of partitions that each replica works on."""
        return [len(each.workers.worked) for each in self.replicas]

    def is_at_rest(self) -> bool:
        """Return whether each partition has one owner, evenly distributed over the replicas that
        can take part.
        """
        worked = sorted(each for replica in self.replicas for each in replica.workers.worked)
        parts = self.parts()
        return (
            worked == sorted(ALL)
            and max(parts) - min(parts) <= 1
            and all(not each.membership.problem for each in self.replicas)
        )

    async def rest(self, *, within: float) -> float:
        """Wait until the fleet is at rest; return the seconds that it took."""
        began = time()
        while not self.is_at_rest():
            assert time() - began < within, self.parts()
            await asyncio.sleep(0.01)
        return time() - began

    async def longest_gap(self, seconds: float) -> float:
        """Return the longest time in seconds for which no replica served a partition, within some
        seconds.
        """
        served_at, longest, end = dict.fromkeys(ALL, time()), 0.0, time() + seconds
        while time() < end:
            served_at |= dict.fromkeys(
                (each for replica in self.replicas for each in replica.workers.served), time()
            )
            longest = max(longest, time() - min(served_at.values()))
            await asyncio.sleep(0.01)
        return longest

    async def _watch(self) -> None:
        """Fail as soon as two replicas that may write work on the same partition."""
        while True:
            sure = [
                each
                for replica in self.replicas
                if replica.fence.is_open
                for each in replica.workers.worked
            ]
            assert len(sure) == len(set(sure)), "two owners"
            await asyncio.sleep(0.02)


@asynccontextmanager
async def a_fleet(seed: int = 0) -> AsyncGenerator[Fleet]:
    async with asyncio.TaskGroup() as group:
        fleet = Fleet(group, LossyKube(seed))
        yield fleet
        for each in fleet.replicas:
            each.freeze()
        fleet.watching.cancel()


async def test_a_single_member_owns_everything_at_once() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        assert await fleet.rest(within=1) < 0.2


@pytest.mark.parametrize(
    "is_still", [pytest.param(False, id="with hints"), pytest.param(True, id="without")]
)
async def test_newcomers_get_their_part_soon(is_still: bool) -> None:
    async with a_fleet() as fleet:
        fleet.hints.is_still = is_still
        fleet.add("a")
        await fleet.rest(within=1)
        for identity in "bcd":
            fleet.add(identity)
        assert await fleet.rest(within=10) < (8 if is_still else 1)


async def test_a_member_that_ends_hands_over_within_a_second() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        ending = fleet.add("b")
        await fleet.rest(within=10)
        ending.workers.busy = set(list(ending.workers.worked)[:3])
        began = time()
        await ending.end()
        await fleet.rest(within=10)
        assert time() - began < 1.0
        assert [
            body["metadata"]["name"]
            for (kind, *_), body in fleet.kube.fake.objects.items()
            if kind == "Lease"
        ] == [format_lease_name("test", "a")]


@pytest.mark.parametrize("busy", [0, 3])
async def test_a_member_that_ends_while_its_lease_is_renewed_hands_over_within_a_second(
    busy: int,
) -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        ending = fleet.add("b")
        await fleet.rest(within=10)
        ending.workers.busy = set(list(ending.workers.worked)[:busy])
        renewed = fleet.kube.replaced[format_lease_name("test", "b")]
        renewed.clear()
        await renewed.wait()
        began = time()
        await ending.end()
        await fleet.rest(within=10)
        assert time() - began < 1.0


@pytest.mark.parametrize(
    "is_renewing",
    [pytest.param(True, id="while its Lease is renewed"), pytest.param(False, id="at rest")],
)
async def test_what_has_no_running_reconcile_is_handed_over_without_waiting_for_one(
    is_renewing: bool,
) -> None:
    async with a_fleet() as fleet:
        heir, ending = fleet.add("a"), fleet.add("b")
        await fleet.rest(within=10)
        busy = set(list(ending.workers.worked)[:3])
        ending.workers.busy, ending.workers.seconds_to_end = set(busy), 5.0
        renewed = fleet.kube.replaced[format_lease_name("test", "b")]
        renewed.clear()
        await renewed.wait()
        if not is_renewing:
            await asyncio.sleep(0.5)
        draining = fleet.group.create_task(ending.end())
        await asyncio.sleep(0.15)
        assert heir.workers.worked == ALL - busy
        await draining
        await asyncio.sleep(0.1)
        assert heir.workers.worked == ALL


async def test_partitions_with_many_objects_move_a_few_at_a_time() -> None:
    async with a_fleet() as fleet:
        first = fleet.add("a")
        await fleet.rest(within=1)
        first.workers.objects = 550
        second = fleet.add("b")
        second.workers.objects = 550
        assert await fleet.longest_gap(10) < 1.0  # all at once are 4.4 s
        await fleet.rest(within=1)
        ending = fleet.group.create_task(first.end())
        assert await fleet.longest_gap(10) < 1.0
        await ending
        await fleet.rest(within=1)


async def test_the_only_member_ends_at_once_however_many_objects_it_has() -> None:
    async with a_fleet() as fleet:
        only = fleet.add("a")
        only.workers.objects = 550
        await fleet.rest(within=1)
        began = time()
        await only.end()
        assert time() - began < 0.2


async def test_a_member_that_ends_keeps_its_lease_until_the_last_part_has_moved() -> None:
    async with a_fleet() as fleet:
        ending, heir = fleet.add("a"), fleet.add("b")
        await fleet.rest(within=10)
        ending.workers.objects = heir.workers.objects = 100_000
        draining = fleet.group.create_task(ending.end())
        while not draining.done():
            assert len(ending.workers.worked | heir.workers.worked) > 48
            assert ending.fence.is_open
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert heir.workers.worked == ALL


@pytest.mark.parametrize(
    "is_rewritten", [False, True], ids=["deleted", "written by another process"]
)
async def test_a_member_that_loses_its_lease_while_it_ends_writes_nothing_more(
    is_rewritten: bool,
) -> None:
    async with a_fleet() as fleet:
        fleet.watching.cancel()  # until its next write two may hold the same
        ending, heir = fleet.add("a"), fleet.add("b")
        await fleet.rest(within=10)
        ending.workers.objects = heir.workers.objects = 100_000
        draining = fleet.group.create_task(ending.end())
        await asyncio.sleep(0.5)
        assert ending.fence.is_open
        if is_rewritten:
            edit(
                fleet,
                "a",
                {labels.PARTITIONS: "", labels.TAKES_PART: "true", labels.SESSION: "other"},
            )
        else:
            del fleet.kube.fake.objects["Lease", NAMESPACE, format_lease_name("test", "a")]
        await asyncio.sleep(0.5)
        assert not draining.done()
        assert not ending.fence.is_open
        await draining


async def test_a_member_that_dies_is_replaced_within_ten_seconds() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        dying = fleet.add("b")
        await fleet.rest(within=10)
        await asyncio.sleep(1.9)
        dying.die()
        assert ownership.DURATION_SECONDS - 2 < await fleet.rest(within=10) < 9.5


@pytest.mark.long
@pytest.mark.parametrize("minutes", [-5, 5])
async def test_clocks_that_differ_by_minutes_change_nothing(minutes: int) -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        dying = fleet.add("b", clock=WrongClock(timedelta(minutes=minutes)))
        assert await fleet.rest(within=10) < 1
        await asyncio.sleep(3 * ownership.DURATION_SECONDS)
        assert fleet.parts() == [32, 32]
        dying.die()
        assert ownership.DURATION_SECONDS - 2 < await fleet.rest(within=10) < 9.5


@pytest.mark.long
async def test_a_frozen_member_writes_nothing_and_returns_with_no_partition() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        frozen = fleet.add("b")
        await fleet.rest(within=10)
        frozen.freeze()
        await asyncio.sleep(12)
        assert len(frozen.workers.worked) == 32  # it still owns them in its own view
        with pytest.raises(errors.OwnershipLost):
            frozen.fence.check()
        frozen.start()
        await fleet.rest(within=10)


async def test_a_short_freeze_changes_nothing() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        frozen = fleet.add("b")
        await fleet.rest(within=10)
        before = set(frozen.workers.worked)
        frozen.freeze()
        await asyncio.sleep(5.5)
        assert not frozen.fence.is_open
        frozen.start()
        await asyncio.sleep(1)
        assert frozen.fence.is_open
        assert frozen.workers.worked == before


@pytest.mark.long
async def test_an_api_server_that_is_away_stops_writes_and_moves_nothing() -> None:
    async with a_fleet() as fleet:
        replicas = [fleet.add("a"), fleet.add("b")]
        await fleet.rest(within=10)
        before = [set(each.workers.worked) for each in replicas]
        fleet.kube.losses = 1.0
        await asyncio.sleep(20)
        assert not any(each.fence.is_open for each in replicas)
        assert all("cannot be kept" in (each.membership.problem or "") for each in replicas)
        fleet.kube.losses = 0.0
        await fleet.rest(within=5)
        assert [set(each.workers.worked) for each in replicas] == before


@pytest.mark.long
async def test_a_member_without_nats_leaves_its_part_to_the_others() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        apart = fleet.add("b")
        await fleet.rest(within=10)
        apart.is_able = False
        await asyncio.sleep(5)
        assert fleet.parts() == [64, 0]
        apart.is_able = True
        await fleet.rest(within=10)


async def test_a_process_that_follows_another_in_its_pod_need_not_wait() -> None:
    async with a_fleet() as fleet:
        fleet.add("a").die()
        await asyncio.sleep(0)
        fleet.add("a", session="2")
        assert await fleet.rest(within=1) < 0.2


@pytest.mark.long
async def test_of_two_members_with_one_identity_one_works_and_the_other_reports_why() -> None:
    async with a_fleet() as fleet:
        first = fleet.add("a")
        await fleet.rest(within=1)
        second = fleet.add("a", session="2")
        await asyncio.sleep(20)
        assert "RAYBUS_IDENTITY" in (first.membership.problem or "")
        assert (len(first.workers.worked), len(second.workers.worked)) == (0, 64)


async def test_a_lease_without_its_annotations_is_corrected() -> None:
    async with a_fleet() as fleet:
        fleet.add("a")
        fleet.add("b")
        await fleet.rest(within=10)
        before = [set(each.workers.worked) for each in fleet.replicas]
        edit(fleet, "a", {})
        await asyncio.sleep(3)
        assert fleet.is_at_rest()
        assert [set(each.workers.worked) for each in fleet.replicas] == before


async def test_partitions_that_a_user_takes_out_of_a_lease_have_one_owner_soon() -> None:
    async with a_fleet() as fleet:
        fleet.watching.cancel()  # for a second two may hold them, and they do not corrupt each other's work
        fleet.add("a")
        fleet.add("b")
        await fleet.rest(within=10)
        edit(fleet, "a", {labels.PARTITIONS: "", labels.TAKES_PART: "true", labels.SESSION: "1"})
        await asyncio.sleep(1)
        await fleet.rest(within=10)


async def test_a_lease_without_its_label_is_created_anew() -> None:
    async with a_fleet() as fleet:
        fleet.watching.cancel()  # see above
        fleet.add("a")
        fleet.add("b")
        await fleet.rest(within=10)
        lease = fleet.kube.fake.objects["Lease", NAMESPACE, format_lease_name("test", "a")]
        fleet.kube.fake.put(LEASE, lease | {"metadata": {**lease["metadata"], "labels": {}}})
        await asyncio.sleep(3)
        await fleet.rest(within=10)
        assert len(fleet.kube.fake.objects) == 2


def edit(fleet: Fleet, identity: str, annotations: dict[str, str]) -> None:
    lease = fleet.kube.fake.objects["Lease", NAMESPACE, format_lease_name("test", identity)]
    fleet.kube.fake.put(
        LEASE, lease | {"metadata": {**lease["metadata"], "annotations": annotations}}
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
async def test_whatever_is_lost_on_the_way_all_comes_to_rest(seed: int) -> None:
    dice = random.Random(seed)
    async with a_fleet(seed) as fleet:
        fleet.kube.losses = 0.15
        fleet.hints.is_still = dice.random() < 0.5
        for turn in range(30):
            await asyncio.sleep(dice.random() * 4)
            acts = [lambda turn=turn: fleet.add(f"r{turn}")]
            if len(fleet.replicas) > 1:
                victim = dice.choice(fleet.replicas)
                acts += [
                    victim.die,
                    victim.freeze,
                    victim.start if dice.random() < 0.5 else victim.die,
                ]
            dice.choice(acts)()
        fleet.kube.losses = 0.0
        for each in fleet.replicas:
            each.freeze()
            each.start()
        await fleet.rest(within=60)


def test_a_lease_has_a_name_that_kubernetes_takes() -> None:
    assert format_lease_name("traffic-manager", "pod-1") == "raybus-traffic-manager-pod-1"
    odd = format_lease_name("traffic-manager", "My_Host.example-77")
    assert odd.startswith("raybus-traffic-manager-my-host-example-77-")
    assert len(format_lease_name("traffic-manager", "x" * 300)) < 253
    assert format_lease_name("traffic-manager", "x" * 300) != format_lease_name(
        "traffic-manager", "x" * 301
    )
