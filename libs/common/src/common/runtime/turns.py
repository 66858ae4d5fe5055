"""Whose turn it is among keys that wait: groups take turns, and within a group who came first goes first.

So a namespace with a thousand keys delays another one with a single key by one look and not by a thousand (design rule 10).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K")


class Turns(Generic[K]):
    """Keys that wait, each put in once by the caller's care."""

    def __init__(self, group_of: Callable[[K], Hashable]) -> None:
        self._group_of = group_of
        self._groups: OrderedDict[Hashable, deque[K]] = OrderedDict()
        """The group whose turn it is stands first."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def put(self, key: K) -> None:
        """Let a key wait behind the others of its group."""
        self._groups.setdefault(self._group_of(key), deque()).append(key)

    def take(self) -> K:
        """Return the key whose turn it is; there must be one."""
        group, keys = next(iter(self._groups.items()))
        key = keys.popleft()
        if keys:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return key
