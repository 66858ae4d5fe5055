"""The informer cache of one replica: the state that the bus delivered, and the answers to our own writes.

An answer goes in at once, so a reconcile reads its own writes; an older message is ignored by its resourceVersion (design rule 5).
The answer to a deletion hides the object until the bus confirms it.

Each partition of the stream is delivered by itself, so the cache knows the partition of an object: a reload or a hand-over of one
partition changes nothing of another. An object that only an answer brought has no partition yet.
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
NONE_IN_PARTICULAR: Final = -1
"""Stands for the partition where a reload finds that an object is gone: any partition's later message counts more."""


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


def key_of(obj: Object) -> Key:
    """Return where the cache keeps an object."""
    return type(obj), obj.metadata.namespace, obj.metadata.name


class Cache:
    """Objects by type, namespace and name, with an index over the labels that lists are asked by."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._index: defaultdict[_Index, set[Key]] = defaultdict(set)
        self._numbers: Counter[type] = Counter()
        self._partitions: dict[Key, int | None] = {}
        """The partition that showed an object last; None while only answers have brought it."""
        self._by_partition: defaultdict[int | None, dict[Key, None]] = defaultdict(dict)
        self._gone: dict[Key, tuple[int, int | None]] = {}
        """Tombstones: deleted objects with the version of their deletion and the partition that reported it (None: an answer), so that
        nothing older brings them back; newest last."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, kind: type[T], namespace: str, name: str) -> T | None:
        """Return one object."""
        found = self._objects.get((kind, namespace, name))
        return found if isinstance(found, kind) else None

    def list(self, kind: type[T], namespace: str, selector: Mapping[str, str]) -> list[T]:
        """Return all objects with matching labels, by name; the selector must name an indexed label."""
        indexed = next(label for label in INDEXED if label in selector)
        keys = self._index.get((kind, namespace, indexed, selector[indexed]), set())
        found = [self._objects[key] for key in sorted(keys)]
        wanted = selector.items()
        return [each for each in found if isinstance(each, kind) and wanted <= each.metadata.labels.items()]

    def all(self, kind: type[T]) -> Iterable[T]:
        """Return every object of a type."""
        return [each for each in self._objects.values() if isinstance(each, kind)]

    def count(self, kind: type[Object]) -> int:
        """Return how many objects of a type there are."""
        return self._numbers[kind]

    def put(self, obj: Object, *, partition: int | None = None, is_reload: bool = False) -> bool:
        """Take an object in, unless we know the same or a newer state; return whether anything changed.

        `partition` is that of the message that shows it, None for the answer to a request of ours. A partition's tombstone does not count
        against another partition that shows the object: it has moved there. A reload counts also in the same version: a watcher of
        another build may publish other fields of it.
        """
        key, version = key_of(obj), version_of(obj.metadata)
        gone_at, reported_by = self._gone.get(key, (-1, None))
        if gone_at >= version and (partition is None or reported_by in (None, partition)):
            return False
        known = self._objects.get(key)
        if partition is not None or known is None:
            self._assign(key, partition)
        known_at = -1 if known is None else version_of(known.metadata)
        if known_at > version or (known_at == version and (not is_reload or known == obj)):
            return False
        if gone_at < version:
            self._gone.pop(key, None)
        self._unindex(key)
        self._numbers[key[0]] += known is None
        self._objects[key] = obj
        for index in _indexes(key, obj):
            self._index[index].add(key)
        return True

    def remove(
        self, kind: type[Object], namespace: str, name: str, *, version: int, partition: int | None = None
    ) -> bool:
        """Forget an object that was gone at a version; return whether anything changed."""
        key = (kind, namespace, name)
        known = self._objects.get(key)
        if known is not None and version_of(known.metadata) > version:
            return False
        before = self._gone.pop(key, (-1, None))
        self._gone[key] = (version, partition) if version >= before[0] else before
        if len(self._gone) > REMEMBERED_DELETIONS:
            del self._gone[next(iter(self._gone))]
        return self._drop(key) is not None

    def move(self, kind: type[Object], namespace: str, name: str, *, origin: int, to: int | None) -> Object | None:
        """Record that an object moved to another partition that we follow (None: that we do not follow).

        Return the object if it is no longer known for that reason. A tombstone of the other partition counts for more.
        """
        key = (kind, namespace, name)
        known = self._objects.get(key)
        if known is None or self._partitions.get(key) != origin:
            return None
        gone_at, reported_by = self._gone.get(key, (-1, None))
        if to is None or (reported_by == to and gone_at >= version_of(known.metadata)):
            return self._drop(key)
        self._assign(key, to)
        return None

    def partition_of(self, kind: type[Object], namespace: str, name: str) -> int | None:
        """Return the partition of an object; None when only an answer brought it."""
        return self._partitions.get((kind, namespace, name))

    def objects_of(self, partition: int | None) -> Objects:
        """Return the objects of a partition, in the order of their arrival; None: those that only answers have brought."""
        return [self._objects[key] for key in self._by_partition.get(partition, ())]

    def forget(self, objects: Iterable[Object]) -> None:
        """Drop objects that live on, and that another replica reconciles."""
        for each in objects:
            self._drop(key_of(each))

    def rewind(self, objects: Iterable[Object]) -> None:
        """Drop objects, and all that is known of deletions: versions began again at a lower one."""
        self.forget(objects)
        self._gone.clear()

    def deleted(self, kind: type[Object], namespace: str, *, prefix: str) -> frozenset[str]:
        """Return the names that begin with a prefix and belonged to objects that are gone, as far as we remember."""
        return frozenset(
            name for view, where, name in self._gone if view is kind and where == namespace and name.startswith(prefix)
        )

    def keep_only(self, seen: Set[Key], among: Iterable[Object], *, listed_at: int) -> Objects:
        """Forget and return what a reload did not bring, and the watcher's list at `listed_at` would have held.

        What is newer than that list stays: it is our own write, and its message is still on the way. What the bus shows
        later is there again.
        """
        stale = [each for each in among if key_of(each) not in seen and version_of(each.metadata) <= listed_at]
        for each in stale:
            self.remove(*key_of(each), version=listed_at, partition=NONE_IN_PARTICULAR)
        return stale

    def _assign(self, key: Key, partition: int | None) -> None:
        if key not in self._partitions or self._partitions[key] != partition:
            self._by_partition[self._partitions.get(key)].pop(key, None)
            self._partitions[key] = partition
            self._by_partition[partition][key] = None

    def _drop(self, key: Key) -> Object | None:
        self._unindex(key)
        self._by_partition[self._partitions.pop(key, None)].pop(key, None)
        known = self._objects.pop(key, None)
        self._numbers[key[0]] -= known is not None
        return known

    def _unindex(self, key: Key) -> None:
        known = self._objects.get(key)
        for index in _indexes(key, known) if known is not None else ():
            self._index[index].discard(key)
            if not self._index[index]:
                del self._index[index]


def _indexes(key: Key, obj: Object) -> Iterable[_Index]:
    kind, namespace, _ = key
    return [(kind, namespace, label, obj.metadata.labels[label]) for label in INDEXED if label in obj.metadata.labels]
