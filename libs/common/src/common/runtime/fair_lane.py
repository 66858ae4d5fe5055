"""Keys that wait, taken in a fair order: round-robin over groups, first in first out within a group.

So a namespace with a thousand keys delays a single key of another one by one reconcile, not by a thousand (design rule 10). With
`size_of` a group alternates between its oldest and its smallest key: a small cluster does not wait for many larger ones, a cluster
of the same size does not wait for all that came before it, and each of the others waits at most twice as long.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class FairLane(Generic[K]):
    """Keys that wait, each put in once by the caller's care."""

    def __init__(self, group_of: Callable[[K], Hashable], *, size_of: Callable[[K], int] | None = None) -> None:
        self._group_of = group_of
        self._size_of = size_of
        self._groups: OrderedDict[Hashable, _Group[K]] = OrderedDict()
        """In order of their next turn."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def put(self, key: K) -> None:
        """Let a key wait with the others of its group."""
        group = self._group_of(key)
        waiting = self._groups.get(group)
        if waiting is None:
            waiting = self._groups[group] = _Group(self._size_of)
        waiting.put(key)

    def waits(self, group: Hashable) -> bool:
        """Return whether a key of a group waits."""
        return group in self._groups

    def has_outside(self, busy: Collection[Hashable]) -> bool:
        """Return whether a key of a group that is not among the busy ones waits."""
        return any(group not in busy for group in self._groups)

    def take(self, busy: Collection[Hashable] = ()) -> K:
        """Return the next key of a group that is not among the busy ones; there must be one."""
        group = next(group for group in self._groups if group not in busy)
        waiting = self._groups[group]
        key = waiting.take()
        if waiting:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return key


class _Group(Generic[K]):
    def __init__(self, size_of: Callable[[K], int] | None) -> None:
        self._size_of = size_of
        self._keys: OrderedDict[K, None] = OrderedDict()
        """In the order of arrival."""
        self._by_size: list[tuple[int, int, K]] = []
        """A heap: size, then the newest first; keys that have been taken are passed over."""
        self._arrivals = 0
        self._smallest_is_next = False

    def __bool__(self) -> bool:
        return bool(self._keys)

    def put(self, key: K) -> None:
        self._keys[key] = None
        if self._size_of is not None:
            self._arrivals += 1
            heapq.heappush(self._by_size, (self._size_of(key), -self._arrivals, key))

    def take(self) -> K:
        key = self._smallest() if self._smallest_is_next else next(iter(self._keys))
        self._smallest_is_next = self._size_of is not None and not self._smallest_is_next
        del self._keys[key]
        return key

    def _smallest(self) -> K:
        while True:
            _, _, key = heapq.heappop(self._by_size)
            if key in self._keys:
                return key
