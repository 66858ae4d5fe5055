"""Which keys are to be looked at, and when.

A key is in work at most once; what arrives meanwhile collapses into one follow-up look (spec raycluster §5.3). A later
look that was promised is kept unless an earlier one comes first. What has just been created goes before what is looked at
again, though not always, groups of keys (namespaces) take turns, and in a crowd of new keys the first and the last go by turns:
somebody's small cluster does not wait for a crowd.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from common.runtime import backoff
from common.runtime.turns import Turns

K = TypeVar("K")

EARLY: Final = 0.001
"""Seconds: an event loop may wake a sleeper a clock's tick early, which must not spin."""
NEW_IN_A_ROW: Final = 8
"""So many new keys are taken before one of the others has its turn."""


def _one_group(_key: object) -> Hashable:
    return None


class WorkQueue(Generic[K]):
    """The keys of one service; all methods belong to one event loop."""

    def __init__(self, *, group_of: Callable[[K], Hashable] = _one_group) -> None:
        self._new: Turns[K] = Turns(group_of, oldest_and_newest=True)
        self._known: Turns[K] = Turns(group_of)
        self._new_in_a_row = 0
        self._waiting: set[K] = set()
        """Keys in `_new` and `_known`."""
        self._busy: set[K] = set()
        self._dirty: set[K] = set()
        """Keys that were woken while in work."""
        self._timers: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """The one timer of a key that counts; older entries of the heap are passed over."""
        self._failures: dict[K, int] = {}
        self._order = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K, *, is_new: bool = False) -> None:
        """Ask for a look at a key as soon as possible; `is_new` when its object has just been created."""
        if key in self._busy:
            self._dirty.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            (self._new if is_new else self._known).put(key)
            self._changed.set()

    def add_at(self, key: K, when: float) -> None:
        """Ask for a look at a key at a time of the event loop's clock, unless an earlier one is promised."""
        if self._due.get(key, when + 1) <= when:
            return
        self._due[key] = when
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, key))
        self._changed.set()

    async def take(self) -> K:
        """Wait for a key and mark it busy; `done`, `retry` or `forget` must follow."""
        while True:
            self._fire_timers()
            if self._waiting:
                key = self._next()
                self._waiting.discard(key)
                self._busy.add(key)
                self._due.pop(key, None)
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout_at(self._timers[0][0] if self._timers else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

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

    def failures(self, key: K) -> int:
        """Return how often in a row a key has failed."""
        return self._failures.get(key, 0)

    def _next(self) -> K:
        if self._new and (self._new_in_a_row < NEW_IN_A_ROW or not self._known):
            self._new_in_a_row += 1
            return self._new.take()
        self._new_in_a_row = 0
        return self._known.take()

    def _release(self, key: K) -> None:
        self._busy.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def _fire_timers(self) -> None:
        now = asyncio.get_running_loop().time() + EARLY
        while self._timers and self._timers[0][0] <= now:
            when, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == when:
                del self._due[key]
                self.add(key)
