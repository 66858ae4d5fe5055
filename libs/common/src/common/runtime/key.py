"""Keys of the reconciles of one controller: the changes that concern them, their order in the work queue, their quarantine. Pure.

An object is in quarantine from the message that declares it, or that does not decode, until a newer one, its deletion, or a reload.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set

import msgspec

from common.api.meta import ObjectMeta
from common.runtime import cache
from common.runtime.cache import Object


class Key(msgspec.Struct, frozen=True, order=True):
    """The object that a reconcile is about."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds that one controller subscribes to, and its keys."""

    kinds: Mapping[str, type[Object]]
    """By Kubernetes' name of the kind, such as `RayCluster`."""
    root: type[Object]
    """The kind that its keys are about."""
    keys_of: Callable[[Object], Iterable[Key]]
    """Returns the keys that an object's change enqueues; pure."""


class Rank(msgspec.Struct, frozen=True):
    """The place of a key in the work queue, judged when it begins to wait."""

    size: int = 1
    """Amount of work of a new key."""
    is_steady: bool = False
    """Whether it had reached its goal before it was enqueued: such keys get workers of their own."""


class Held(msgspec.Struct, frozen=True):
    """An object in quarantine, and the keys that wait for it."""

    partition: int
    keys: frozenset[Key]
    metadata: ObjectMeta
    why: str


class Quarantine:
    """The objects in quarantine in one replica: their state is not known, so the keys that it concerns wait."""

    def __init__(self) -> None:
        self._held: dict[cache.Key, Held] = {}
        self._waits_for: defaultdict[Key, dict[cache.Key, None]] = defaultdict(dict)

    def put(self, place: cache.Key, held: Held) -> None:
        """Take an object in."""
        self.pop(place)
        self._held[place] = held
        for key in held.keys:
            self._waits_for[key][place] = None

    def pop(self, place: cache.Key, *, partition: int | None = None) -> frozenset[Key]:
        """Let an object out, unless another partition has put it in; return the keys that waited for it."""
        held = self._held.get(place)
        if held is None or partition not in {None, held.partition}:
            return frozenset()
        del self._held[place]
        for key in held.keys:
            del self._waits_for[key][place]
            if not self._waits_for[key]:
                del self._waits_for[key]
        return held.keys

    def release(self, partitions: Set[int]) -> list[Key]:
        """Let all objects of some partitions out; return the keys that waited for them."""
        released = [place for place, held in self._held.items() if held.partition in partitions]
        return [key for place in released for key in self.pop(place)]

    def keys_of(self, partition: int) -> list[Key]:
        """Return the keys that wait for an object of a partition."""
        held = [each for each in self._held.values() if each.partition == partition]
        return [key for each in held for key in each.keys]

    def of(self, key: Key) -> Held | None:
        """Return an object for which a key waits."""
        return next((self._held[place] for place in self._waits_for.get(key, ())), None)
