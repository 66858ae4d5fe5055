"""One replica's part in the division of work: it keeps its Lease, takes what is free, gives what others should have.

The Leases are the truth and `common.runtime.ownership` decides; here is the order of the steps, which makes it safe. To take:
name the partitions in our own Lease, list again, and begin only with those that no other Lease names. To give: end the looks,
forget, and only then take the partitions out of our Lease. Writes pass the fence only for a while after each renewal, and not at
all once somebody has deleted our Lease.
"""

import asyncio
import contextlib
from collections.abc import Callable, Set
from typing import Protocol

import structlog

from common import errors
from common.kube.replica_leases import ReplicaLeases
from common.observability import ownership as metrics
from common.runtime import ownership
from common.runtime.fence import Fence
from common.runtime.ownership import Standing

log = structlog.get_logger()

LOOK_SECONDS = 1.0
"""Between two looks at the Leases of others."""
LOOK_PATIENCE = 0.5
"""Seconds that a look may go on after its partition was asked for; then it is cut short."""
RETRY_SECONDS = 0.3
LEAVE_SECONDS = 3.0
"""What it may take to hand all over at the end, if the API server is slow."""


class Ground(Protocol):
    """What a partition is held by."""

    def take(self, partitions: Set[int]) -> None:
        """Begin to follow some partitions."""
        ...

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        """Begin nothing more in some partitions; return those of them where something is still under way."""
        ...

    async def release(self, partitions: Set[int], *, patience: float) -> None:
        """Stop and forget some partitions; what is under way may go on for `patience` seconds."""
        ...


class Hints(Protocol):
    """Word among replicas that their Leases have changed."""

    async def send(self) -> None:
        """Have the others look now."""
        ...

    async def wait(self, seconds: float) -> None:
        """Wait for such a word, at most so many seconds."""
        ...


class Membership:
    """What one replica holds, and why."""

    def __init__(  # noqa: PLR0913  (all that it stands between)
        self,
        leases: ReplicaLeases,
        ground: Ground,
        hints: Hints,
        *,
        fence: Fence,
        steady: Callable[[], float],
        is_able: Callable[[], bool],
        controller: str,
    ) -> None:
        self._leases = leases
        self._ground = ground
        self._hints = hints
        self._fence = fence
        self._steady = steady
        self._is_able = is_able
        self._controller = controller
        self._held: frozenset[int] = frozenset()
        self._mine: Standing | None = None
        """Our Lease as we wrote it last."""
        self._others: ownership.Sightings = {}
        self._ours: ownership.Sightings = {}
        """Our own Lease as the API server has it."""
        self._is_ousted = False
        self._contested: frozenset[int] = frozenset()
        """What we held at the last look although another Lease named it."""
        self._renewed_at = float("-inf")
        self._problem: str | None = "the Leases are not yet read"
        metrics.LEASE_AGE.labels(leases.name).set_function(self._age)

    @property
    def held(self) -> frozenset[int]:
        """Return the partitions that we look after."""
        return self._held

    @property
    def problem(self) -> str | None:
        """Say why this replica does not do its part; None when it does. What readiness asks."""
        if self._problem is not None or not self._fence.is_open:
            return self._problem or f"the Lease {self._leases.name} was not renewed for {self._age():.0f} s"
        if self._held or ownership.is_everything_held(self._held, self._others):
            return None
        return "no partition is ours yet, and some are nobody's"

    async def run(self) -> None:
        """Take part until cancelled."""
        while True:
            try:
                await self._turn()
            except errors.RaybusError as problem:
                self._note(f"the Leases of the replicas cannot be kept: {problem}")
                await self._hints.wait(RETRY_SECONDS)
            else:
                self._note(None)
                await self._hints.wait(self._pause())

    async def leave(self) -> None:
        """Hand all over, so that others can go on at once; what goes wrong, the end of our Lease mends."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                busy = self._ground.stop(self._held)
                if idle := self._held - busy:
                    await self._release(idle, patience=0.0)
                if busy:
                    await self._keep_only(busy)
                    await self._release(busy, patience=LOOK_PATIENCE)
                if self._mine is not None:
                    await self._leases.drop(uid=self._mine.uid)
                await self._hints.send()
        except (errors.RaybusError, TimeoutError) as problem:
            log.warning("the partitions could not be handed over", error=str(problem))
        finally:
            self._fence.close()

    # --- one turn ----------------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Look at all Leases, and do what they ask for."""
        mine = await self._look()
        if not self._is_ours(mine):
            await self._begin(mine)
            mine = await self._look()
        self._mine = mine or self._mine
        for each in [each.standing for each in self._others.values() if each.remaining <= 0]:
            await self._clear(each)
        await self._yield()
        takes_part = self._is_able()
        move = ownership.decide(self._leases.identity, self._held, self._others, takes_part=takes_part)
        if move.give:
            await self._give(move.give)
        if move.take:
            await self._take(move.take)
        if self._is_due(takes_part=takes_part):
            await self._write(self._held)

    async def _look(self) -> Standing | None:
        """Read all Leases; return ours."""
        listed = {each.name: each for each in await self._leases.list()}
        mine = listed.pop(self._leases.name, None)
        self._ours = ownership.see(self._ours, [] if mine is None else [mine], now=self._steady())
        self._others = ownership.see(self._others, listed.values(), now=self._steady())
        return mine

    def _is_ours(self, found: Standing | None) -> bool:
        """Tell whether it is still our Lease: nobody has deleted it, and no other process writes it."""
        if found is None or self._mine is None or found.uid != self._mine.uid:
            return False
        return found.session in {self._leases.session, ""}

    async def _begin(self, found: Standing | None) -> None:
        """Have a Lease that names nothing: at the start, and when the one that we had is gone."""
        if self._mine is not None:
            self._fence.close()
            lost, self._held = self._held, frozenset()
            self._mine = None
            log.warning("our Lease is gone, and all partitions with it", partitions=len(lost), lease=self._leases.name)
            self._count("lost", lost)
            self._is_ousted = found is not None
            await self._ground.release(lost, patience=0.0)
        if self._is_ousted and found is not None and self._ours[found.name].remaining > 0:
            raise errors.Conflict(
                f"another process renews {found.name}: give every replica an identity of its own (RAYBUS_IDENTITY)"
            )
        self._is_ousted = False
        asked_at, takes_part = self._steady(), self._is_able()
        if found is None:
            self._mine = await self._create(takes_part=takes_part)
        else:  # of the process before us, in the same pod
            self._mine = await self._leases.write(found, frozenset(), takes_part=takes_part)
        self._renew(asked_at)
        await self._hints.send()

    async def _create(self, *, takes_part: bool) -> Standing:
        try:
            return await self._leases.create(takes_part=takes_part)
        except errors.AlreadyExists:  # made by a request whose answer was lost, or somebody took its label away
            await self._leases.drop()
            return await self._leases.create(takes_part=takes_part)

    async def _clear(self, expired: Standing) -> None:
        """Delete the Lease of somebody who was silent for too long."""
        try:
            await self._leases.clear(expired)
        except errors.Conflict:
            return  # it lives
        except errors.NotFound:
            pass
        log.warning("a replica was silent for too long", identity=expired.identity, partitions=len(expired.partitions))
        self._others = {name: each for name, each in self._others.items() if name != expired.name}

    async def _yield(self) -> None:
        """Give up what somebody else names as well: that happens only where a Lease was edited by hand.

        Who has just claimed what is ours sees that at once and takes it back, so it is looked at twice.
        """
        contested = ownership.contested(self._held, self._others)
        lasting = contested & self._contested
        self._contested = contested
        if lasting:
            log.warning("partitions are claimed twice and given up", partitions=ownership.spell(lasting))
            await self._give(lasting)

    async def _take(self, wanted: frozenset[int]) -> None:
        """Claim partitions, and begin with those that nobody else claims."""
        await self._write(self._held | wanted)
        mine = await self._look()
        if mine is None or self._mine is None or mine.version != self._mine.version:
            return  # the next turn finds out what happened, and begins with nothing
        won = wanted.difference(*(each.standing.partitions for each in self._others.values()))
        self._held |= won
        self._ground.take(won)
        self._count("taken", won)
        log.info("partitions taken", partitions=ownership.spell(won), held=len(self._held))
        if won != wanted:
            await self._write(self._held)

    async def _give(self, partitions: frozenset[int]) -> None:
        """Give partitions up: first those where nothing is under way, then the others."""
        busy = self._ground.stop(partitions)
        for part, patience in ((partitions - busy, 0.0), (busy, LOOK_PATIENCE)):
            if part:
                await self._release(part, patience=patience)
                await self._write(self._held)
                await self._hints.send()

    async def _release(self, partitions: frozenset[int], *, patience: float) -> None:
        """Look after some partitions no more; our Lease names them still."""
        await self._ground.release(partitions, patience=patience)
        self._held -= partitions
        self._count("given", partitions)
        log.info("partitions given away", partitions=ownership.spell(partitions), held=len(self._held))

    async def _keep_only(self, busy: frozenset[int]) -> None:
        """Let others have all but the partitions where something is under way; our Lease goes soon, whether this succeeds or not.

        The end may have cut a renewal short that the API server has carried out, so the Lease is read first.
        """
        with contextlib.suppress(errors.RaybusError):
            mine = await self._look()
            if self._is_ours(mine):
                self._mine = mine
                await self._write(busy, takes_part=False)
                await self._hints.send()

    async def _write(self, partitions: frozenset[int], *, takes_part: bool = True) -> None:
        """Renew our Lease, with what it is to name."""
        if self._mine is None:
            return
        asked_at = self._steady()
        self._mine = await self._leases.write(self._mine, partitions, takes_part=takes_part and self._is_able())
        self._renew(asked_at)

    def _renew(self, asked_at: float) -> None:
        self._renewed_at = asked_at
        self._fence.open_until(asked_at + ownership.DEADLINE_SECONDS)

    def _is_due(self, *, takes_part: bool) -> bool:
        """Tell whether our Lease must be written: it is old, or does not say what holds."""
        if self._mine is None or (self._mine.partitions, self._mine.takes_part) != (self._held, takes_part):
            return True
        return self._age() + LOOK_SECONDS / 2 >= ownership.RENEW_SECONDS

    def _pause(self) -> float:
        """Return for how many seconds nothing needs to be looked at, unless a hint comes."""
        until_renewal = ownership.RENEW_SECONDS - self._age()
        if not self._others:
            return until_renewal
        return min(LOOK_SECONDS, until_renewal, *(each.remaining for each in self._others.values()))

    def _age(self) -> float:
        return self._steady() - self._renewed_at

    def _count(self, direction: str, partitions: frozenset[int]) -> None:
        metrics.HANDOVERS.labels(self._controller, direction).inc(len(partitions))

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            log.warning("the Leases cannot be kept", why=problem)
        self._problem = problem
