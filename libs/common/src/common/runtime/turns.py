"""Whose turn it is among keys that wait: groups take turns, and within a group who came first goes first.

So a namespace with a thousand keys delays another one with a single key by one look and not by a thousand (design rule 10).
Where a crowd comes at once, `oldest_and_newest` lets the one who came first and the one who came last go by turns: who comes
after a crowd waits for one look, and each of the crowd for at most twice as long.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K")


class Turns(Generic[K]):
    """Keys that wait, each put in once by the caller's care."""

    def __init__(self, group_of: Callable[[K], Hashable], *, oldest_and_newest: bool = False) -> None:
        self._group_of = group_of
        self._alternates = oldest_and_newest
        self._groups: OrderedDict[Hashable, _Group[K]] = OrderedDict()
        """The group whose turn it is stands first."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def put(self, key: K) -> None:
        """Let a key wait with the others of its group."""
        self._groups.setdefault(self._group_of(key), _Group(alternates=self._alternates)).keys.append(key)

    def take(self) -> K:
        """Return the key whose turn it is; there must be one."""
        group, waiting = next(iter(self._groups.items()))
        key = waiting.take()
        if waiting.keys:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return key


class _Group(Generic[K]):
    def __init__(self, *, alternates: bool) -> None:
        self.keys: deque[K] = deque()
        self._alternates = alternates
        self._newest_is_next = False

    def take(self) -> K:
        key = self.keys.pop() if self._newest_is_next else self.keys.popleft()
        self._newest_is_next = self._alternates and not self._newest_is_next
        return key
