"""Which keys are to be looked at, and when.

A key is in work at most once; what arrives meanwhile collapses into one follow-up look (spec raycluster §5.3). A later
look that was promised is kept unless an earlier one comes first. What has just been created goes before what is looked at
again, though not always, groups of keys (namespaces) take turns, and in a crowd of new keys the first and the smallest go by
turns: somebody's small cluster does not wait for a crowd. Nor does a cluster that had reached its goal until something happened to
it: such keys wait in a lane of their own, for workers of their own. Their looks mostly find nothing to do and take a millisecond,
where a crowd's looks take seconds and would hold every worker.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from common.runtime import backoff
from common.runtime.precedence import never_rests, one_size
from common.runtime.turns import Turns

K = TypeVar("K", bound=Hashable)

EARLY: Final = 0.001
"""Seconds: an event loop may wake a sleeper a clock's tick early, which must not spin."""
NEW_IN_A_ROW: Final = 8
"""So many new keys are taken before one of the others has its turn."""


class Meter(Protocol):
    """Who is told how a queue fares; must return at once."""

    def added(self) -> None:
        """Count a key that waits now."""
        ...

    def waited(self, seconds: float) -> None:
        """Take note of how long a key waited that is taken now."""
        ...

    def worked(self, seconds: float) -> None:
        """Take note of how long a key was in work."""
        ...


class _Nobody:
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
        rests: Callable[[K], bool] = never_rests,
        meter: Meter | None = None,
    ) -> None:
        self._meter: Meter = meter or _Nobody()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Whose time the others are; None before the first key."""
        self._new: Turns[K] = Turns(group_of, size_of=size_of)
        self._known: Turns[K] = Turns(group_of)
        self._rested: Turns[K] = Turns(group_of)
        """Keys that had reached their goal when somebody asked for a look."""
        self._rests = rests
        self._new_in_a_row = 0
        self._waiting: dict[K, float] = {}
        """Keys in `_new`, `_known` and `_rested`, and since when."""
        self._busy: dict[K, float] = {}
        """Keys in work, and since when."""
        self._dirty: dict[K, float] = {}
        """Keys that were woken while in work, and when that was first."""
        self._timers: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """The one timer of a key that counts; older entries of the heap are passed over."""
        self._failures: dict[K, int] = {}
        self._order = 0
        self._changed = asyncio.Event()
        self._rested_changed = asyncio.Event()

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

    def add(self, key: K, *, is_new: bool = False) -> None:
        """Ask for a look at a key as soon as possible; `is_new` when its object has just been created."""
        self._ask(key, self._new if is_new else self._lane(key))

    def add_at(self, key: K, when: float) -> None:
        """Ask for a look at a key at a time of the event loop's clock, unless an earlier one is promised."""
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
            self._changed.clear()
            try:
                async with asyncio.timeout_at(self._timers[0][0] if self._timers else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def take_rested(self) -> K:
        """Wait for a key that had reached its goal, and do as `take` does."""
        while not self._rested:
            self._rested_changed.clear()
            await self._rested_changed.wait()
        return self._taken(self._rested.take())

    def done(self, key: K, *, look_again_at: float | None = None) -> None:
        """Say that the look ended well; forget its failures."""
        self._failures.pop(key, None)
        self._release(key)
        if look_again_at is not None:
            self.add_at(key, look_again_at)

    def retry(self, key: K, *, after: float = 0.0, longest: float = backoff.LONGEST) -> float:
        """Say that the look failed; return the seconds until the next one, at least `after`."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        wait = max(after, backoff.delay(failures, longest=longest))
        self._release(key)
        self.add_at(key, asyncio.get_running_loop().time() + wait)
        return wait

    def forget(self, key: K) -> None:
        """Drop all that is known of a key; one that waits for its turn is still taken."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        self._dirty.pop(key, None)

    def waits(self, key: K) -> bool:
        """Tell whether a look at a key is asked for as soon as possible."""
        return key in self._waiting or key in self._dirty

    def failures(self, key: K) -> int:
        """Return how often in a row a key has failed."""
        return self._failures.get(key, 0)

    def _taken(self, key: K) -> K:
        now = asyncio.get_running_loop().time()
        self._meter.waited(now - self._waiting.pop(key))
        self._busy[key] = now
        self._due.pop(key, None)
        return key

    def _next(self) -> K:
        if self._new and (self._new_in_a_row < NEW_IN_A_ROW or not self._known):
            self._new_in_a_row += 1
            return self._new.take()
        self._new_in_a_row = 0
        return self._known.take()

    def _ask(self, key: K, lane: Turns[K]) -> None:
        if key in self._waiting or key in self._dirty:
            return
        self._loop = asyncio.get_running_loop()
        self._meter.added()
        if key in self._busy:
            self._dirty[key] = self._loop.time()
        else:
            self._put(key, lane, since=self._loop.time())

    def _lane(self, key: K) -> Turns[K]:
        """Return where a key waits that is known."""
        return self._rested if self._rests(key) else self._known

    def _put(self, key: K, lane: Turns[K], *, since: float) -> None:
        self._waiting[key] = since
        lane.put(key)
        (self._rested_changed if lane is self._rested else self._changed).set()

    def _release(self, key: K) -> None:
        began = self._busy.pop(key, None)
        if began is not None:
            self._meter.worked(asyncio.get_running_loop().time() - began)
        since = self._dirty.pop(key, None)
        if since is not None:
            self._put(key, self._lane(key), since=since)

    def _fire_timers(self) -> None:
        now = asyncio.get_running_loop().time() + EARLY
        while self._timers and self._timers[0][0] <= now:
            when, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == when:
                del self._due[key]
                self._ask(key, self._known)
