"""The work queue: the keys to reconcile, and when.

A key is reconciled by at most one worker at a time; requests that arrive meanwhile become one more
reconcile (spec raycluster §5.3). A scheduled reconcile is kept unless an earlier one is scheduled.
Waiting keys are in three lanes:

- New keys, whose object has just been created. The oldest and the smallest key are taken in turn,
  so that a small cluster does not wait for many others.
- Known keys. They are taken before new ones, so that objects that were created first reach their
  goal first. But they occupy no more workers than new keys, so that large, slow objects do not
  delay new ones.
- Steady keys, whose object had reached its goal when they were enqueued. They have their own
  workers: most of their reconciles find nothing to do and take a millisecond, while those of many
  new keys take seconds and would occupy every worker.

Within a lane, groups of keys (namespaces) take turns. Additional workers (`take_of_idle_group`)
take only keys of groups in which no key is being reconciled, so that one slow namespace occupies at
most one of these workers.
"""

import asyncio
import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable
from functools import cached_property, partial
from itertools import count
from typing import Final, Generic, TypeVar

from common.observability.metrics import ReconcileMeter
from common.runtime.key import KeyPriority

K = TypeVar("K", bound=Hashable)

KNOWN_IN_A_ROW: Final = 8
"""Maximum number of known keys that are taken in a row before a new one.

It is more than 1, because most reconciles of known keys take only milliseconds.
"""
COALESCED: Final = 0.2
"""Seconds that a known key must wait while there are new keys.

Changes of the object during this time cause only one reconcile."""
FIRST_BACKOFF: Final = 0.005
"""Seconds until the retry after the first failure, as in controller-runtime (spec raycluster
§5.4)."""
MAX_BACKOFF: Final = 30.0
"""Maximum seconds until a retry.

KubeRay waits up to 1000 s, even if the problem lasted only seconds (spec rayservice W21)."""

MAX_DOUBLINGS: Final = 40
"""Maximum number of doublings of a wait; it avoids a float overflow if a key fails for days."""


def backoff(before: int, *, first: float = FIRST_BACKOFF, longest: float = MAX_BACKOFF) -> float:
    """Return the seconds to wait after a failure that follows `before` consecutive failures.

    The wait begins with `first` and doubles with each failure, up to `longest`.
    """
    return min(longest, first * 2.0 ** min(before, MAX_DOUBLINGS))


class WorkQueue(Generic[K]):
    """The keys that one controller must reconcile; to be used in one event loop only."""

    def __init__(
        self,
        *,
        group_of: Callable[[K], Hashable],
        rank: Callable[[K], KeyPriority] | None,
        meter: ReconcileMeter,
    ) -> None:
        self._group_of = group_of
        self._rank_of = rank
        self.lanes = [
            self.take,
            self.take_of_idle_group,
            *([] if rank is None else [self.take_steady]),
        ]
        """The methods with which workers take keys; each worker uses one of them."""
        self._meter = meter
        self._idle, self._idle_of_steady, self._idle_of_idle_groups = (
            asyncio.Semaphore(0) for _ in range(3)
        )
        """Semaphores on which idle workers wait, one for each method with which keys are taken.

        A key wakes only one worker of a method, since waking all would cost more than most
        reconciles.
        """
        self._new, self._known, self._steady = _FairLane[K](), _FairLane[K](), _FairLane[K]()
        self._known_in_a_row = 0
        self._lanes: dict[K, _FairLane[K]] = {}
        """The lane from which each busy key was taken."""
        self._waiting: dict[K, float] = {}
        """Keys in the lanes, with the time at which each began to wait."""
        self._busy: dict[K, float] = {}
        """Keys that are being reconciled, with the time at which a worker took each of them."""
        self._busy_groups: Counter[Hashable] = Counter()
        """Number of busy keys in each group."""
        self._dirty: dict[K, float] = {}
        """Busy keys that were enqueued again, with the time of the first such request."""
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}
        """Scheduled keys with time and handle, since uvloop's handle does not have the time."""
        self._failures: dict[K, int] = {}

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, whose clock all times in this class use.

        The loop is looked up when the first key is added, in the loop's own thread. The thread that
        answers scrapes of the metrics could not look it up.
        """
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._waiting)

    def get_longest_wait(self) -> float:
        """Return the seconds for which the longest-waiting key has waited; 0 if none waits."""
        return self._loop.time() - min(self._waiting.values()) if self._waiting else 0.0

    def get_running_times(self) -> list[float]:
        """Return for how many seconds each running reconcile has run."""
        return [self._loop.time() - since for since in self._busy.values()]

    def find_overdue(self, seconds: float) -> list[tuple[K, str]]:
        """Return the keys that have been waiting or in work for more than `seconds`.

        Each key comes with its state, "in work" or "waiting"; the keys in work are first.
        """
        before = self._loop.time() - seconds
        states = (("in work", self._busy), ("waiting", self._waiting))
        return [
            (key, state) for state, keys in states for key, since in keys.items() if since < before
        ]

    def is_waiting(self, key: K) -> bool:
        """Return whether a key waits for a reconcile that is not scheduled for later."""
        return key in self._waiting or key in self._dirty

    def count_failures(self, key: K) -> int:
        """Return the number of consecutive failures of a key."""
        return self._failures.get(key, 0)

    # --- requests -----------------------------------------------------------------------------

    def add(
        self, key: K, *, is_new: bool = False, is_due: bool = False, since: float | None = None
    ) -> None:
        """Enqueue a key to be reconciled as soon as possible, and wake workers for it.

        `is_new` means that its object has just been created, and `is_due` that its scheduled time
        has come. `since` is the time from which the wait counts, by default the present.
        """
        if is_due:
            del self._timers[key]
        if self.is_waiting(key):
            return
        if since is None:
            since = self._loop.time()
            self._meter.adds.inc()
        if key in self._busy:
            self._dirty[key] = since
            return
        try:
            rank = KeyPriority() if self._rank_of is None else self._rank_of(key)
        except Exception:  # noqa: BLE001  (the reconcile of the key reports the problem)
            rank = KeyPriority()
        self._waiting[key], group = since, self._group_of(key)
        lane = (
            self._new if is_new else self._steady if rank.is_steady and not is_due else self._known
        )
        lane.put(group, key, size=rank.size if is_new else None)
        idle = [self._idle_of_steady if lane is self._steady else self._idle]
        for workers in idle if group in self._busy_groups else (*idle, self._idle_of_idle_groups):
            if workers.locked():  # else a woken worker has not yet continued
                workers.release()

    def add_at(self, key: K, when: float) -> None:
        """Enqueue a key at a time of the event loop, unless an earlier time is scheduled."""
        if key in self._timers and self._timers[key][0] <= when:
            return
        self._cancel_timer(key)
        self._timers[key] = when, self._loop.call_at(when, partial(self.add, key, is_due=True))

    def forget(self, key: K) -> None:
        """Drop the timer, failures and repeated requests of a key; if it waits, it stays queued."""
        self._cancel_timer(key)
        self._failures.pop(key, None)
        self._dirty.pop(key, None)

    def _cancel_timer(self, key: K) -> None:
        if key in self._timers:
            self._timers.pop(key)[1].cancel()

    # --- workers ------------------------------------------------------------------------------

    async def take(self) -> K:
        """Wait for a new or known key, mark it busy and return it.

        The caller must call `done` or `retry` afterwards.
        """
        while not (self._new or self._known):
            await self._idle.acquire()
        in_work = Counter(map(id, self._lanes.values()))
        is_knowns_turn = (
            self._known_in_a_row < KNOWN_IN_A_ROW
            and in_work[id(self._known)] <= in_work[id(self._new)]
        )
        has_waited = (
            self._known and self._loop.time() - self._waiting[self._known.next_key] >= COALESCED
        )
        takes_known = self._known and ((is_knowns_turn and has_waited) or not self._new)
        self._known_in_a_row = self._known_in_a_row + 1 if takes_known else 0
        return self._mark_taken(self._known if takes_known else self._new)

    async def take_of_idle_group(self) -> K:
        """Do the same as `take` for any key in whose group no key is busy."""
        while True:
            for lane in (self._new, self._known, self._steady):
                if any(group not in self._busy_groups for group in lane):
                    return self._mark_taken(lane, self._busy_groups)
            await self._idle_of_idle_groups.acquire()

    async def take_steady(self) -> K:
        """Do the same as `take` for a steady key."""
        while not self._steady:
            await self._idle_of_steady.acquire()
        return self._mark_taken(self._steady)

    def done(self, key: K, *, requeue_at: float | None = None) -> None:
        """Record that a key was reconciled successfully; this resets the key's failures.

        If no key of its group is busy any more, a waiting key of the group may be taken.
        """
        self._failures.pop(key, None)
        self._meter.work.observe(self._loop.time() - self._busy.pop(key))
        del self._lanes[key]
        group = self._group_of(key)
        self._busy_groups[group] -= 1
        if self._busy_groups[group] == 0:
            del self._busy_groups[group]
            lanes, idle = (self._new, self._known, self._steady), self._idle_of_idle_groups
            if any(group in lane for lane in lanes) and idle.locked():
                idle.release()
        if (since := self._dirty.pop(key, None)) is not None:
            self.add(key, since=since)
        if requeue_at is not None:
            self.add_at(key, requeue_at)

    def retry(self, key: K, *, after: float = 0.0) -> float:
        """Record a failed reconcile; return the seconds until the next one, at least `after`."""
        before = self.count_failures(key)
        wait = max(after, backoff(before))
        self.done(key, requeue_at=self._loop.time() + wait)
        self._failures[key] = before + 1
        return wait

    def _mark_taken(self, lane: "_FairLane[K]", busy: Collection[Hashable] = ()) -> K:
        key, now = lane.take(busy), self._loop.time()
        self._meter.wait.observe(now - self._waiting.pop(key))
        self._busy[key], self._lanes[key] = now, lane
        self._busy_groups[self._group_of(key)] += 1
        self._cancel_timer(key)
        return key


class _FairLane(OrderedDict[Hashable, "_Group[K]"]):
    """Waiting keys, taken in a fair order: round-robin over groups, first in first out in a group.

    So a namespace with a thousand keys delays a key of a different namespace by one reconcile, not
    by a thousand. If keys have sizes, the oldest and the smallest key of a group are taken in turn.
    So a small cluster does not wait for many larger ones. Among keys of the same size, the newest
    counts as the smallest. No key waits more than twice as long as without sizes.

    As a mapping, it contains the groups with waiting keys, in the order of their turns.
    """

    def put(self, group: Hashable, key: K, *, size: int | None) -> None:
        """Add a key to its group; the key must not be in the lane already.

        A key with a `size` may be taken before older keys.
        """
        if group not in self:
            self[group] = _Group()
        self[group].put(key, size)

    @property
    def next_key(self) -> K:
        """The oldest key of the next group; the lane must not be empty."""
        return next(iter(next(iter(self.values())).keys))

    def take(self, busy: Collection[Hashable]) -> K:
        """Remove and return the next key whose group is not in `busy`; there must be one."""
        group = next(group for group in self if group not in busy)
        waiting = self[group]
        key = waiting.take()
        if waiting.keys:
            self.move_to_end(group)
        else:
            del self[group]
        return key


class _Group(Generic[K]):
    def __init__(self) -> None:
        self.keys: OrderedDict[K, None] = OrderedDict()
        """The waiting keys in order of arrival."""
        self._by_size: list[tuple[int, int, K]] = []
        """A heap of the keys with a size: the smallest first, and of the same size the newest.

        It may contain keys that have been taken already; these are skipped.
        """
        self._arrivals = count(step=-1)
        self._smallest_is_next = False

    def put(self, key: K, size: int | None) -> None:
        self.keys[key] = None
        if size is not None:
            heapq.heappush(self._by_size, (size, next(self._arrivals), key))

    def take(self) -> K:
        key = next(iter(self.keys))
        if self._smallest_is_next:
            while (key := heapq.heappop(self._by_size)[2]) not in self.keys:
                pass
        self._smallest_is_next = bool(self._by_size) and not self._smallest_is_next
        del self.keys[key]
        return key
