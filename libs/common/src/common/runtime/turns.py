"""Whose turn it is among keys that wait: groups take turns, and within a group who came first goes first.

So a namespace with a thousand keys delays another one with a single key by one look and not by a thousand (design rule 10).
Where `size_of` tells how much work a key is, who came first and who wants least go by turns: somebody's small cluster does not
wait for a crowd of larger ones, who wants as little as the crowd does not wait for those before it, and each of the crowd waits
for at most twice as long.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """Keys that wait, each put in once by the caller's care."""

    def __init__(self, group_of: Callable[[K], Hashable], *, size_of: Callable[[K], int] | None = None) -> None:
        self._group_of = group_of
        self._size_of = size_of
        self._groups: OrderedDict[Hashable, _Group[K]] = OrderedDict()
        """The group whose turn it is stands first."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def put(self, key: K) -> None:
        """Let a key wait with the others of its group."""
        group = self._group_of(key)
        waiting = self._groups.get(group)
        if waiting is None:
            waiting = self._groups[group] = _Group(self._size_of)
        waiting.put(key)

    def take(self) -> K:
        """Return the key whose turn it is; there must be one."""
        group, waiting = next(iter(self._groups.items()))
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
