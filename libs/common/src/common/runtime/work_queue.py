"""The work queue: which keys are to be reconciled, and when.

A key is in work at most once; requests that arrive meanwhile become one further reconcile (spec raycluster §5.3). A scheduled
reconcile is kept unless an earlier one comes first. There are three lanes:

- New keys: the object has just been created. They go before known ones, though not always. The oldest and the smallest alternate,
  so that a small cluster does not wait for many others.
- Known keys.
- Steady keys, which had reached their goal when they were enqueued. They have workers of their own: their reconciles mostly
  find nothing to do and take a millisecond, where those of many new keys take seconds and would hold every worker.

Within a lane groups of keys (namespaces) alternate. A group without a key in work has workers that take the keys of such groups
alone (`take_of_idle_group`): one namespace, whatever its reconciles wait for, holds one of these.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from common.runtime.fair_lane import FairLane
from common.runtime.key import never_steady, one_size

K = TypeVar("K", bound=Hashable)

EARLY: Final = 0.001
"""Seconds: an event loop may end a wait a clock's tick early, which must not spin."""
NEW_IN_A_ROW: Final = 8
"""New keys in a row before one of the known ones is taken."""
FIRST_BACKOFF: Final = 0.005
"""Seconds after the first failure, as controller-runtime waits (spec raycluster §5.4)."""
LONGEST_BACKOFF: Final = 30.0
"""Seconds at most. KubeRay waits up to 1000 s for problems that last seconds (spec rayservice W21)."""


def backoff(failures: int) -> float:
    """Return the seconds to wait after `failures` failures in a row: 5 ms, 10 ms, 20 ms … `LONGEST_BACKOFF`."""
    return min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures - 1, 40)) if failures > 0 else 0.0


class Meter(Protocol):
    """Measures a queue; each call must return at once."""

    def added(self) -> None:
        """Count a key that waits now."""
        ...

    def waited(self, seconds: float) -> None:
        """Record how long a key waited that is taken now."""
        ...

    def worked(self, seconds: float) -> None:
        """Record how long a key was in work."""
        ...


class _NoMeter:
    """Counts nothing."""

    def added(self) -> None:
        pass

    def waited(self, seconds: float) -> None:
        pass

    def worked(self, seconds: float) -> None:
        pass


def _one_group(_key: object) -> Hashable:
    return None


class WorkQueue(Generic[K]):
    """The keys of one service; all methods belong to one event loop."""

    def __init__(
        self,
        *,
        group_of: Callable[[K], Hashable] = _one_group,
        size_of: Callable[[K], int] = one_size,
        is_steady: Callable[[K], bool] = never_steady,
        meter: Meter | None = None,
    ) -> None:
        self._meter: Meter = meter or _NoMeter()
        self._group_of = group_of
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of all times here; None before the first key."""
        self._new: FairLane[K] = FairLane(group_of, size_of=size_of)
        self._known: FairLane[K] = FairLane(group_of)
        self._steady: FairLane[K] = FairLane(group_of)
        self._is_steady = is_steady
        self._new_in_a_row = 0
        self._waiting: dict[K, float] = {}
        """Keys in `_new`, `_known` and `_steady`, and since when."""
        self._busy: dict[K, float] = {}
        """Keys in work, and since when."""
        self._busy_groups: Counter[Hashable] = Counter()
        """Groups with keys in work, and with how many."""
        self._dirty: dict[K, float] = {}
        """Keys that were enqueued while in work, and when that was first."""
        self._timers: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """The one timer of a key that counts; older entries of the heap are passed over."""
        self._failures: dict[K, int] = {}
        self._order = 0
        self._changed = asyncio.Event()
        self._steady_changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def longest_wait(self) -> float:
        """Return for how many seconds the key has waited that waits longest."""
        if self._loop is None or not self._waiting:
            return 0.0
        return self._loop.time() - min(self._waiting.values())

    def under_way(self) -> list[float]:
        """Return for how many seconds each key in work has been in work."""
        return [] if self._loop is None else [self._loop.time() - since for since in self._busy.values()]

    def overdue(self, seconds: float) -> list[tuple[K, str]]:
        """Return the keys that have waited, or were in work, for longer, each with which of the two."""
        if self._loop is None:
            return []
        before = self._loop.time() - seconds
        states = (("waiting", self._waiting), ("in work", self._busy))
        return [(key, state) for state, keys in states for key, since in keys.items() if since < before]

    def add(self, key: K, *, is_new: bool = False) -> None:
        """Enqueue a key as soon as possible; `is_new` when its object has just been created."""
        self._ask(key, self._new if is_new else self._lane(key))

    def add_at(self, key: K, when: float) -> None:
        """Enqueue a key at a time of the event loop's clock, unless an earlier time is scheduled."""
        if self._due.get(key, when + 1) <= when:
            return
        self._due[key] = when
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, key))
        self._changed.set()

    async def take(self) -> K:
        """Wait for a key and mark it busy; `done` or `retry` must follow."""
        while True:
            self._fire_timers()
            if self._new or self._known:
                return self._taken(self._next())
            await self._wait()

    async def take_of_idle_group(self) -> K:
        """Wait for a key of a group of which no key is in work, and do as `take` does."""
        while True:
            self._fire_timers()
            for lane in (self._new, self._known, self._steady):
                if lane.has_outside(self._busy_groups):
                    return self._taken(lane.take(self._busy_groups))
            await self._wait()

    async def take_steady(self) -> K:
        """Wait for a steady key, and do as `take` does."""
        while not self._steady:
            self._steady_changed.clear()
            await self._steady_changed.wait()
        return self._taken(self._steady.take())

    def done(self, key: K, *, requeue_at: float | None = None) -> None:
        """Report a reconcile that succeeded; forget the key's failures."""
        self._failures.pop(key, None)
        self._release(key)
        if requeue_at is not None:
            self.add_at(key, requeue_at)

    def retry(self, key: K, *, after: float = 0.0) -> float:
        """Report a reconcile that failed; return the seconds until the next one, at least `after`."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        wait = max(after, backoff(failures))
        self._release(key)
        self.add_at(key, asyncio.get_running_loop().time() + wait)
        return wait

    def forget(self, key: K) -> None:
        """Drop all that is known of a key; a waiting key is still taken."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        self._dirty.pop(key, None)

    def waits(self, key: K) -> bool:
        """Return whether a reconcile of a key is requested as soon as possible."""
        return key in self._waiting or key in self._dirty

    def failures(self, key: K) -> int:
        """Return how often in a row a key has failed."""
        return self._failures.get(key, 0)

    async def _wait(self) -> None:
        """Wait until a key is added, a group becomes idle, or a timer is due."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._timers[0][0] if self._timers else None):
                await self._changed.wait()

    def _taken(self, key: K) -> K:
        now = asyncio.get_running_loop().time()
        self._meter.waited(now - self._waiting.pop(key))
        self._busy[key] = now
        self._busy_groups[self._group_of(key)] += 1
        self._due.pop(key, None)
        return key

    def _next(self) -> K:
        if self._new and (self._new_in_a_row < NEW_IN_A_ROW or not self._known):
            self._new_in_a_row += 1
            return self._new.take()
        self._new_in_a_row = 0
        return self._known.take()

    def _ask(self, key: K, lane: FairLane[K]) -> None:
        if key in self._waiting or key in self._dirty:
            return
        self._loop = asyncio.get_running_loop()
        self._meter.added()
        if key in self._busy:
            self._dirty[key] = self._loop.time()
        else:
            self._put(key, lane, since=self._loop.time())

    def _lane(self, key: K) -> FairLane[K]:
        """Return the lane of a known key."""
        return self._steady if self._is_steady(key) else self._known

    def _put(self, key: K, lane: FairLane[K], *, since: float) -> None:
        self._waiting[key] = since
        lane.put(key)
        self._changed.set()
        if lane is self._steady:
            self._steady_changed.set()

    def _release(self, key: K) -> None:
        began = self._busy.pop(key, None)
        if began is not None:
            self._meter.worked(asyncio.get_running_loop().time() - began)
            self._leave_work(self._group_of(key))
        since = self._dirty.pop(key, None)
        if since is not None:
            self._put(key, self._lane(key), since=since)

    def _leave_work(self, group: Hashable) -> None:
        """Count one key of a group less in work; notify the workers of idle groups if the group has more keys."""
        self._busy_groups[group] -= 1
        if self._busy_groups[group] == 0:
            del self._busy_groups[group]
            if any(lane.waits(group) for lane in (self._new, self._known, self._steady)):
                self._changed.set()

    def _fire_timers(self) -> None:
        now = asyncio.get_running_loop().time() + EARLY
        while self._timers and self._timers[0][0] <= now:
            when, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == when:
                del self._due[key]
                self._ask(key, self._known)
