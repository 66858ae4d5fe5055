"""Membership of one replica: renews its Lease, acquires free partitions, releases surplus ones.

The Leases are the source of truth, and `common.runtime.ownership` decides. This module keeps the
steps in a safe order. To acquire partitions, it writes them into this replica's Lease, lists all
Leases again, and starts only the partitions that no other Lease contains. To release partitions, it
ends their reconciles, drops their objects, and only then removes them from the Lease. The fence
allows writes for a limited time after each renewal, and none once the Lease is deleted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Set

import structlog

from common import errors
from common.bus import subjects
from common.bus.feed import Feed
from common.bus.nats import Bus
from common.observability import metrics
from common.runtime import ownership
from common.runtime.controller import Controller
from common.runtime.fence import Fence
from common.runtime.ownership import LeaseObservation, Part, ReplicaLease
from common.runtime.replica_leases import ReplicaLeases

log = structlog.get_logger()

LIST_SECONDS = 1.0
"""Maximum seconds between two lists of the Leases while there are other replicas."""
RECONCILE_GRACE_SECONDS = 0.25
"""Seconds for which a running reconcile may continue when its partition is handed over.

Then the reconcile is cancelled, because a hand-over should take no longer than a second."""
RETRY_SECONDS = 0.3
LISTEN_AGAIN_SECONDS = 1.0
MAX_PART_SECONDS = 0.3
"""Maximum seconds of the pause after each part of the hand-over when a replica shuts down."""
LEAVE_SECONDS = 6.0
"""Maximum seconds of the whole hand-over when a replica shuts down."""


class PartitionFeeds:
    """Starts and stops the message feeds of the partitions that this replica holds."""

    def __init__(self, controller: Controller, feed: Feed, group: asyncio.TaskGroup) -> None:
        self.name = controller.name
        self._controller = controller
        self._feed = feed
        self._group = group
        self._following: dict[int, asyncio.Task[None]] = {}

    def acquire(self, partitions: Set[int]) -> None:
        for partition in sorted(partitions):
            listener = self._controller.informer.hold(partition)
            self._following[partition] = self._group.create_task(
                self._feed.follow(partition, listener)
            )

    def sizes(self, partitions: Set[int]) -> Mapping[int, int]:
        return {
            partition: len(self._controller.informer.cache.objects_of(partition))
            for partition in partitions
        }

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        """Start no more reconciles in these partitions; return those with a running reconcile."""
        return self._controller.stop(partitions)

    async def release(self, partitions: Set[int], *, grace_seconds: float) -> None:
        """Stop these partitions and drop their objects.

        Running reconciles may continue for `grace_seconds`.
        """
        for partition in partitions & self._following.keys():
            self._following.pop(partition).cancel()
        await self._controller.release(partitions, grace_seconds=grace_seconds)


class Hints:
    """Messages with which replicas of a service tell each other that a Lease has changed.

    Hints only save time: replicas list the Leases periodically anyway.
    """

    def __init__(self, bus: Bus, *, service: str) -> None:
        self._bus = bus
        self._subject = subjects.build_hint_subject(service)
        self._hinted = asyncio.Event()

    async def run(self) -> None:
        """Receive hints until cancelled, also after reconnects."""
        while True:
            session = await self._bus.session()
            try:
                await session.listen(self._subject, self._receive)
            except errors.Retryable as problem:
                log.warning("cannot receive hints", error=str(problem))
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)
            else:
                self._hinted.set()  # hints may have been lost without a connection
                await session.until_lost()

    async def send(self) -> None:
        """Tell all other replicas to list the Leases now."""
        with contextlib.suppress(errors.RaybusError):
            await self._bus.current.publish(self._subject)

    async def wait(self, seconds: float) -> None:
        """Wait for a hint, at most `seconds`; return at once if one came since the last call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._hinted.wait()
        self._hinted.clear()

    async def _receive(self, _message: object) -> None:
        self._hinted.set()


class Membership:
    """Manages the Lease of one replica, and the partitions that the replica holds."""

    def __init__(
        self,
        leases: ReplicaLeases,
        feeds: PartitionFeeds,
        hints: Hints,
        *,
        fence: Fence,
        is_able: Callable[[], bool],
    ) -> None:
        self._leases = leases
        self._feeds = feeds
        self._hints = hints
        self._fence = fence
        self._now = fence.clock
        self._is_able = is_able
        self._held: frozenset[int] = frozenset()
        self._mine: ReplicaLease | None = None
        """This replica's Lease as it was last written or read here."""
        self._others: dict[str, LeaseObservation] = {}
        self._ours: dict[str, LeaseObservation] = {}
        """The observation of this replica's Lease; empty while the Lease does not exist."""
        self._is_ousted = False
        self._contested: frozenset[int] = frozenset()
        """Held partitions that were also in another replica's Lease at the last list.

        If the other replica has just claimed them, it sees this replica's Lease and withdraws its
        claim. So partitions are released only if two consecutive lists show the conflict, as after
        a manual edit.
        """
        self._renewed_at = float("-inf")
        self._next_part_at: float | None = None
        """When to hand over the next part of the surplus partitions; None without a surplus."""
        self._problem: str | None = "the Leases are not yet read"
        metrics.LEASE_AGE.labels(leases.name).set_function(self._age)

    @property
    def problem(self) -> str | None:
        """Why the replica's Lease or partitions make it unready; None if they do not."""
        if self._problem is not None or not self._fence.is_open:
            return (
                self._problem
                or f"the Lease {self._leases.name} was not renewed for {self._age():.0f} s"
            )
        if self._held or ownership.is_everything_held(self._held, self._others):
            return None
        return "no partition is ours yet, and some are nobody's"

    async def run(self) -> None:
        """Renew the Lease, and acquire and release partitions, until cancelled."""
        while True:
            problem, pause = None, RETRY_SECONDS
            try:
                await self._renew_and_rebalance()
                # Compute when to list the Leases again, if no hint comes earlier.
                until_renewal = ownership.RENEW_SECONDS - self._age()
                remaining = [other.remaining for other in self._others.values()]
                pause = min(LIST_SECONDS, until_renewal, *remaining) if remaining else until_renewal
                pause = (
                    pause
                    if self._next_part_at is None
                    else min(pause, self._next_part_at - self._now())
                )
            except errors.RaybusError as refused:
                problem = f"the Leases of the replicas cannot be kept: {refused}"
                if problem != self._problem:
                    log.warning("cannot renew Leases", why=problem)
            self._problem = problem
            await self._hints.wait(pause)

    async def hand_over_all(self) -> None:
        """Hand over all partitions in parts; each part is reconciled here until its turn.

        If the hand-over fails, the other replicas must wait until this replica's Lease expires.
        """
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                has_heir = bool(ownership.find_heirs(self._others))
                parts = (
                    ownership.split_into_parts(self._feeds.sizes(self._held))
                    if has_heir
                    else [Part(self._held, 0.0)]
                )
                for part in parts:
                    await self._hand_over(part.partitions, takes_part=False)
                    if self._held:
                        await asyncio.sleep(min(part.seconds, MAX_PART_SECONDS))
                if self._mine is not None:
                    await self._leases.delete(self._leases.name, uid=self._mine.uid)
                await self._hints.send()
        except (errors.RaybusError, TimeoutError) as problem:
            log.warning("cannot hand over partitions", error=str(problem))
        finally:
            self._fence.close()

    # --- one turn -----------------------------------------------------------------------------

    async def _renew_and_rebalance(self) -> None:
        """List Leases, delete expired ones, rebalance partitions, renew this replica's Lease."""
        mine = await self._observe()
        if not self._is_ours(mine):
            await self._create_lease(mine)
            mine = await self._observe()
        self._mine = mine or self._mine
        for lease in [other.lease for other in self._others.values() if other.remaining <= 0]:
            with contextlib.suppress(errors.Conflict):  # the Lease was renewed meanwhile
                with contextlib.suppress(errors.NotFound):
                    await self._leases.delete(lease.name, uid=lease.uid, version=lease.version)
                count = len(lease.partitions)
                log.warning(
                    "replica silent for too long", identity=lease.identity, partitions=count
                )
                del self._others[lease.name]
        contested = ownership.find_contested(self._held, self._others)
        lasting, self._contested = contested & self._contested, contested
        if lasting:
            spelt = ownership.format_partitions(lasting)
            log.warning("two Leases hold the same partitions; releasing them", partitions=spelt)
            await self._hand_over(lasting)
        takes_part = self._is_able()
        change = ownership.decide(
            self._leases.identity, self._held, self._others, takes_part=takes_part
        )
        if not change.release:
            self._next_part_at = None
        elif self._next_part_at is None or self._now() >= self._next_part_at:
            part = ownership.split_into_parts(self._feeds.sizes(change.release))[0]
            await self._hand_over(part.partitions)
            self._next_part_at = self._now() + part.seconds
        if change.acquire:
            await self._acquire(change.acquire)
        written = self._mine and (self._mine.partitions, self._mine.takes_part)
        if (
            written != (self._held, takes_part)
            or self._age() + LIST_SECONDS / 2 >= ownership.RENEW_SECONDS
        ):
            await self._write(self._mine, self._held)

    async def _observe(self) -> ReplicaLease | None:
        """List all Leases and record them; return this replica's, or None if it does not exist."""
        listed = {lease.name: lease for lease in await self._leases.list()}
        mine = listed.pop(self._leases.name, None)
        self._ours = ownership.observe(self._ours, [] if mine is None else [mine], now=self._now())
        self._others = ownership.observe(self._others, listed.values(), now=self._now())
        return mine

    def _is_ours(self, lease: ReplicaLease | None) -> bool:
        """Return whether a Lease is still this process's own.

        False if it was deleted, or if a different process has written it.
        """
        if lease is None or self._mine is None or lease.uid != self._mine.uid:
            return False
        return lease.session in {self._leases.session, ""}

    async def _create_lease(self, lease: ReplicaLease | None) -> None:
        """Create a Lease without partitions: at the start, or if the Lease was lost.

        If a different process keeps renewing the Lease, raise `Conflict`.
        """
        if self._mine is not None:
            self._fence.close()
            lost, self._held = self._held, frozenset()
            self._mine = None
            log.warning(
                "Lease deleted; all partitions lost",
                partitions=len(lost),
                lease=self._leases.name,
            )
            metrics.HANDOVERS.labels(self._feeds.name, "lost").inc(len(lost))
            self._is_ousted = lease is not None
            await self._feeds.release(lost, grace_seconds=0.0)
        if self._is_ousted and lease is not None and self._ours[lease.name].remaining > 0:
            raise errors.Conflict(
                f"another process renews {lease.name}: give every replica an identity of its own "
                "(RAYBUS_IDENTITY)"
            )
        self._is_ousted = False
        # A Lease that exists at the start was written by the previous process of this pod.
        try:
            await self._write(lease, frozenset())
        # The Lease was created by a request that got no answer, or its label was removed.
        except errors.AlreadyExists:
            await self._leases.delete(self._leases.name)
            await self._write(None, frozenset())
        await self._hints.send()

    async def _acquire(self, partitions: frozenset[int]) -> None:
        """Claim partitions in this replica's Lease; start those that are in no other Lease."""
        await self._write(self._mine, self._held | partitions)
        mine = await self._observe()
        if mine is None or self._mine is None or mine.version != self._mine.version:
            return  # the Lease was changed or deleted; the next turn handles that
        won = ownership.find_unclaimed(partitions, self._others)
        self._held |= won
        self._feeds.acquire(won)
        metrics.HANDOVERS.labels(self._feeds.name, "taken").inc(len(won))
        log.info(
            "partitions taken", partitions=ownership.format_partitions(won), held=len(self._held)
        )
        if won != partitions:
            await self._write(self._mine, self._held)

    async def _hand_over(self, partitions: frozenset[int], *, takes_part: bool = True) -> None:
        """Hand over partitions: first those without a running reconcile, then the others.

        `takes_part` is False if the process is shutting down and must acquire no more partitions.
        """
        busy = self._feeds.stop(partitions)
        for part, grace_seconds in ((partitions - busy, 0.0), (busy, RECONCILE_GRACE_SECONDS)):
            if part:
                # Until the end of this release, the Lease of this replica contains the partitions.
                await self._feeds.release(part, grace_seconds=grace_seconds)
                self._held -= part
                metrics.HANDOVERS.labels(self._feeds.name, "given").inc(len(part))
                log.info(
                    "partitions released",
                    partitions=ownership.format_partitions(part),
                    held=len(self._held),
                )
                if takes_part:
                    await self._write(self._mine, self._held)
                    await self._hints.send()
                elif self._held:
                    await self._keep_held()

    async def _keep_held(self) -> None:
        """At shutdown, write to this replica's Lease only the partitions that it still holds.

        On a conflict, the Lease is read and written once more, because the shutdown may have
        cancelled a renewal that the API server has executed. If the Lease is not this process's any
        more, other replicas may hold its partitions, so the fence is closed.
        """
        with contextlib.suppress(errors.RaybusError):
            try:
                await self._write(self._mine, self._held, takes_part=False)
            except (errors.Conflict, errors.NotFound):
                if not self._is_ours(mine := await self._observe()):
                    self._fence.close()
                    return
                await self._write(mine, self._held, takes_part=False)
            await self._hints.send()

    async def _write(
        self, replaced: ReplicaLease | None, partitions: Set[int], *, takes_part: bool = True
    ) -> None:
        """Write this replica's Lease with these partitions; create it if `replaced` is None."""
        asked_at = self._now()
        self._mine = await self._leases.write(
            replaced, partitions, takes_part=takes_part and self._is_able()
        )
        self._renewed_at = asked_at
        self._fence.open_until = asked_at + ownership.DEADLINE_SECONDS

    def _age(self) -> float:
        return self._now() - self._renewed_at
