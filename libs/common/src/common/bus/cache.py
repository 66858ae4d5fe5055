"""The state of the cluster as one replica knows it: what the bus told, and what our own writes were answered.

An answer goes in at once, so a reconcile reads its own writes; an older message is ignored by its resourceVersion
(design rule 5). A deletion that we saw answered hides the object until the bus says the same.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Final, Protocol, TypeVar

from common import labels
from common.api.meta import ObjectMeta

INDEXED: Final = (labels.CLUSTER, labels.ORIGIN_NAME, labels.SERVICE_NAME)
"""Labels that lists are asked by."""
REMEMBERED_DELETIONS: Final = 10_000
"""An answer is late by seconds, so the newest deletions are enough."""


class Object(Protocol):
    """Any object view: what the cache needs is its metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Object)
Objects = list[Object]
Key = tuple[type, str, str]
_Index = tuple[type, str, str, str]


def version_of(meta: ObjectMeta) -> int:
    """Return a resourceVersion as a number; the API server promises that newer ones are greater."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0


class Cache:
    """Objects by type, namespace and name, with an index over the labels that lists are asked by."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._index: defaultdict[_Index, set[Key]] = defaultdict(set)
        self._numbers: Counter[type] = Counter()
        self._gone: dict[Key, int] = {}
        """Deleted objects with the version at which they went, so that a late answer cannot bring them back; newest last."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, kind: type[T], namespace: str, name: str) -> T | None:
        """Return one object."""
        found = self._objects.get((kind, namespace, name))
        return found if isinstance(found, kind) else None

    def list(self, kind: type[T], namespace: str, selector: Mapping[str, str]) -> list[T]:
        """Return all objects whose labels match, by name; the selector must name an indexed label."""
        indexed = next(label for label in INDEXED if label in selector)
        keys = self._index.get((kind, namespace, indexed, selector[indexed]), set())
        found = [self._objects[key] for key in sorted(keys)]
        return [
            each
            for each in found
            if isinstance(each, kind) and all(each.metadata.labels.get(k) == v for k, v in selector.items())
        ]

    def all(self, kind: type[T]) -> Iterable[T]:
        """Return every object of a type."""
        return [each for each in self._objects.values() if isinstance(each, kind)]

    def count(self, kind: type[Object]) -> int:
        """Return how many objects of a type there are."""
        return self._numbers[kind]

    def put(self, obj: Object) -> bool:
        """Take an object in, unless we know the same or a newer state; return whether anything changed."""
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        version = version_of(obj.metadata)
        known = self._objects.get(key)
        if known is not None and version_of(known.metadata) >= version:
            return False
        if self._gone.get(key, -1) >= version:
            return False
        self._gone.pop(key, None)
        self._unindex(key)
        self._numbers[key[0]] += known is None
        self._objects[key] = obj
        for index in _indexes(key, obj):
            self._index[index].add(key)
        return True

    def remove(self, kind: type[Object], namespace: str, name: str, *, version: int) -> bool:
        """Forget an object that was gone at a version; return whether anything changed."""
        key = (kind, namespace, name)
        known = self._objects.get(key)
        if known is not None and version_of(known.metadata) > version:
            return False
        self._gone[key] = max(version, self._gone.pop(key, 0))
        if len(self._gone) > REMEMBERED_DELETIONS:
            del self._gone[next(iter(self._gone))]
        self._unindex(key)
        self._numbers[kind] -= known is not None
        return self._objects.pop(key, None) is not None

    def deleted(self, kind: type[Object], namespace: str, *, prefix: str) -> frozenset[str]:
        """Return the names that begin with a prefix and belonged to objects that are gone, as far as we remember."""
        return frozenset(
            name for view, where, name in self._gone if view is kind and where == namespace and name.startswith(prefix)
        )

    def keep_only(self, seen: Set[Key], *, listed_at: int) -> Objects:
        """Forget what a reload did not bring and the watcher's list at `listed_at` would have held; return it.

        What is newer than that list stays: it is our own write, and its message is still on the way.
        """
        stale = [
            (key, each)
            for key, each in self._objects.items()
            if key not in seen and version_of(each.metadata) <= listed_at
        ]
        for (kind, namespace, name), _ in stale:
            self.remove(kind, namespace, name, version=listed_at)
        return [each for _, each in stale]

    def _unindex(self, key: Key) -> None:
        known = self._objects.get(key)
        if known is None:
            return
        for index in _indexes(key, known):
            keys = self._index[index]
            keys.discard(key)
            if not keys:
                del self._index[index]


def _indexes(key: Key, obj: Object) -> Iterable[_Index]:
    kind, namespace, _ = key
    return [(kind, namespace, label, obj.metadata.labels[label]) for label in INDEXED if label in obj.metadata.labels]
