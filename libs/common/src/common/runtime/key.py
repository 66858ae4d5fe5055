"""The keys of a controller, their priority in the work queue, and the objects in quarantine.

An object is in quarantine if its message says so or cannot be decoded. The quarantine ends with a
newer message, the deletion of the object, or a reload.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set

import msgspec

from common.api.meta import ObjectMeta
from common.runtime import cache
from common.runtime.cache import Object


class Key(msgspec.Struct, frozen=True, order=True):
    """Namespace and name of the object that a reconcile is about."""

    namespace: str
    name: str
    kind: str = ""
    """Kind of the object; empty if it is the main root kind of the controller."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds that a controller watches, and the mapping from objects to keys."""

    kinds: Mapping[str, type[Object]]
    """Type of the decoded objects for each kind, such as `RayCluster`."""
    root: type[Object]
    """Type of the main root objects: those that the controller reconciles by keys without a kind.
    """
    other_roots: Mapping[str, type[Object]] = {}
    """Types of the other root objects, by the kind in their keys."""
    keys_of: Callable[[Object], Iterable[Key]]
    """Function that returns the keys to enqueue when an object changes, without any I/O."""

    def get_root_type(self, key: Key) -> type[Object]:
        """Return the type of the root object of a key."""
        return self.other_roots[key.kind] if key.kind else self.root

    def find_root_key(self, view: type[Object], namespace: str, name: str) -> Key | None:
        """Return the key of an object of the type `view`; None if it is not a root type."""
        if view is self.root:
            return Key(namespace, name)
        kind = next((kind for kind, root in self.other_roots.items() if root is view), None)
        return None if kind is None else Key(namespace, name, kind)


class KeyPriority(msgspec.Struct, frozen=True):
    """Priority of a key in the work queue, determined when the key is enqueued."""

    size: int = 1
    """Amount of work that a new key needs. Keys with less work are preferred."""
    is_steady: bool = False
    """Whether the object had reached its goal before the change that enqueued the key.

    Such keys have their own workers.
    """


class QuarantinedObject(msgspec.Struct, frozen=True):
    """An object in quarantine, with the keys that wait for it."""

    partition: int
    keys: frozenset[Key]
    metadata: ObjectMeta
    why: str


class Quarantine:
    """The objects in quarantine in one replica, and the keys that are not reconciled meanwhile."""

    def __init__(self) -> None:
        self._held: dict[cache.ObjectKey, QuarantinedObject] = {}
        self._waits_for: defaultdict[Key, dict[cache.ObjectKey, None]] = defaultdict(dict)

    def put(self, place: cache.ObjectKey, quarantined: QuarantinedObject) -> None:
        self.pop(place)
        self._held[place] = quarantined
        for key in quarantined.keys:
            self._waits_for[key][place] = None

    def pop(self, place: cache.ObjectKey, *, partition: int | None = None) -> frozenset[Key]:
        """Remove an object from quarantine; return the keys that waited for it.

        If `partition` is set, do so only if that partition has put the object in quarantine.
        """
        quarantined = self._held.get(place)
        if quarantined is None or partition not in {None, quarantined.partition}:
            return frozenset()
        del self._held[place]
        for key in quarantined.keys:
            del self._waits_for[key][place]
            if not self._waits_for[key]:
                del self._waits_for[key]
        return quarantined.keys

    def release(self, partitions: Set[int]) -> list[Key]:
        """Remove all objects of these partitions; return the keys that waited for them."""
        released = [
            place
            for place, quarantined in self._held.items()
            if quarantined.partition in partitions
        ]
        return [key for place in released for key in self.pop(place)]

    def keys_of(self, partition: int) -> list[Key]:
        """Return the keys that wait for objects which this partition has put in quarantine."""
        waiting = [
            quarantined for quarantined in self._held.values() if quarantined.partition == partition
        ]
        return [key for quarantined in waiting for key in quarantined.keys]

    def find(self, key: Key) -> QuarantinedObject | None:
        """Return an object in quarantine for which a key waits; None if there is none."""
        return next((self._held[place] for place in self._waits_for.get(key, ())), None)
