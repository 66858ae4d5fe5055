"""Keys that wait because the state of an object is not known: pure.

An object is in quarantine from the message that declares it, or that does not decode, until a newer one, its deletion, or a reload.
"""

from collections.abc import Set

import msgspec

from common.api.meta import ObjectMeta
from common.runtime.key import Key

Named = tuple[str, str, str]
"""An object by its kind, namespace and name."""


class Held(msgspec.Struct, frozen=True):
    """An object in quarantine."""

    partition: int
    keys: frozenset[Key]
    metadata: ObjectMeta
    why: str


class Quarantine:
    """The objects in quarantine in one replica."""

    def __init__(self) -> None:
        self._held: dict[Named, Held] = {}
        self._named: dict[Key, dict[Named, None]] = {}

    def put(self, named: Named, held: Held) -> None:
        """Take an object in."""
        self.pop(named)
        self._held[named] = held
        for key in held.keys:
            self._named.setdefault(key, {})[named] = None

    def pop(self, named: Named, *, partition: int | None = None) -> frozenset[Key]:
        """Let an object out, unless another partition has put it in; return the keys that waited for it."""
        held = self._held.get(named)
        if held is None or partition not in {None, held.partition}:
            return frozenset()
        del self._held[named]
        for key in held.keys:
            waits_for = self._named[key]
            del waits_for[named]
            if not waits_for:
                del self._named[key]
        return held.keys

    def release(self, partitions: Set[int]) -> None:
        """Let all objects of some partitions out."""
        for named in [named for named, held in self._held.items() if held.partition in partitions]:
            self.pop(named)

    def holds(self, key: Key) -> bool:
        """Return whether a key waits."""
        return key in self._named

    def of(self, key: Key) -> Held | None:
        """Return an object for which a key waits."""
        named = next(iter(self._named.get(key, ())), None)
        return self._held[named] if named is not None else None
