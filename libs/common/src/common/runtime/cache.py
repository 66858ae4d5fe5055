"""The informer cache of one replica: objects from NATS, and from answers to the replica's writes.

The answer to a write is stored at once, so that a reconcile reads its own writes; messages with an
older resourceVersion are ignored. The answer to a deletion removes the object before NATS reports
the deletion.

The partitions of the stream are independent of each other. The cache knows the partition of each
object, so that a reload or hand-over of one partition does not affect the others. An object that is
known only from an answer of the API server has no partition yet.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Set
from sys import intern
from typing import Final, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from common import labels
from common.api.core import Pod
from common.api.meta import ObjectMeta

INDEXED: Final = (
    labels.CLUSTER,
    labels.ORIGIN_NAME,
    labels.SERVICE_NAME,
    labels.CRON_JOB_NAME,
)
"""Labels with an index. The selector of `Cache.list` must have one of them."""
REMEMBERED_DELETIONS: Final = 10_000
"""Maximum number of tombstones.

Outdated messages arrive within seconds of a deletion, so only the newest tombstones matter.
"""
MAX_INTERNED: Final = 2048
"""Maximum number of parts of pods that a `PodInterner` shares.

At the limit it forgets all parts and begins again, which costs only memory.
"""
MAX_INTERNED_SIZE: Final = 16 * 2**10
"""Maximum encoded size in bytes of a part of a pod that a `PodInterner` shares."""
UNKNOWN_PARTITION: Final = -1
"""Partition number in a tombstone of a deletion that was noticed only by a reload.

A message from any real partition takes precedence over such a tombstone.
"""


class Object(Protocol):
    """Any object with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T")
Viewed = TypeVar("Viewed", bound=Object)
Objects = list[Object]
ObjectKey = tuple[type, str, str]
EntryKey = TypeVar("EntryKey", bound=Hashable)
Value = TypeVar("Value")
REMEMBERED: Final = 8192
ROOM: Final = 64 * 2**20
"""Maximum total size of the entries of a `BoundedDict`, in bytes or characters."""


class BoundedDict(MutableMapping[EntryKey, Value]):
    """A dictionary with a limit on the number of entries and on their total size.

    Beyond a limit, the entry that was set longest ago is evicted. `size` returns the size of an
    entry, in bytes or characters. `dropped` is called with each value that is deleted or evicted,
    but not with one that is replaced.
    """

    def __init__(
        self,
        *,
        max_entries: int | None = None,
        size: Callable[[EntryKey, Value], int] = lambda _name, _value: 0,
        dropped: Callable[[Value], object] = lambda _value: None,
    ) -> None:
        self._held: OrderedDict[EntryKey, tuple[Value, int]] = OrderedDict()
        self._most = REMEMBERED if max_entries is None else max_entries
        self._size_of = size
        self._dropped = dropped
        self._size = 0

    def __getitem__(self, key: EntryKey) -> Value:
        return self._held[key][0]

    def __setitem__(self, key: EntryKey, value: Value) -> None:
        size, before = self._size_of(key, value), self._held.get(key)
        self._size += size if before is None else size - before[1]
        self._held[key] = value, size
        self._held.move_to_end(key)
        while len(self._held) > self._most or self._size > ROOM:
            del self[next(iter(self._held))]

    def __delitem__(self, key: EntryKey) -> None:
        value, size = self._held.pop(key)
        self._size -= size
        self._dropped(value)

    def __iter__(self) -> Iterator[EntryKey]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def make_key(obj: Object) -> ObjectKey:
    """Return the type, namespace and name by which the cache stores an object."""
    return type(obj), obj.metadata.namespace, obj.metadata.name


class PodInterner:
    """Keeps one copy of equal parts of pods, to save memory.

    The pods of a worker group are almost equal except for their names.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, bytes], object] = {}

    def pod(self, pod: Pod) -> Pod:
        """Return an equal pod in which parts are shared with other pods."""
        meta, status, part = pod.metadata, pod.status, self._part
        shared_meta = replace(
            meta,
            namespace=intern(meta.namespace),
            labels={intern(name): intern(value) for name, value in meta.labels.items()},
            owner_references=part("owners", meta.owner_references),
        )
        shared_status = replace(
            status,
            conditions=part("conditions", status.conditions),
            container_statuses=part("containers", status.container_statuses),
            init_container_statuses=part("init containers", status.init_container_statuses),
        )
        return replace(pod, metadata=shared_meta, spec=part("spec", pod.spec), status=shared_status)

    def _part(self, name: str, part: T) -> T:
        if len(encoded := msgspec.msgpack.encode(part)) > MAX_INTERNED_SIZE:
            return part
        if len(self._held) >= MAX_INTERNED:
            self._held.clear()
        return cast("T", self._held.setdefault((name, encoded), part))


class Cache:
    """Objects by type, namespace and name, with an index over the labels in `INDEXED`."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, Object] = {}
        self._shared = PodInterner()
        self._partitions: dict[ObjectKey, int | None] = {}
        """The partition of each object; None if the object is known only from the API server."""
        self._index: defaultdict[Hashable, dict[ObjectKey, None]] = defaultdict(dict)
        """Keys of the objects with each type, partition or indexed label, in order of arrival."""
        self._gone: dict[ObjectKey, tuple[int, int | None]] = {}
        """Tombstones: resourceVersion of each deletion, and the partition that reported it.

        The partition is None if the API server reported the deletion. Tombstones prevent an older
        message from restoring a deleted object. The newest tombstone is last.
        """
        self._removed: Objects = []
        """Objects that were removed since the last call of `take_removed`."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, kind: type[Viewed], namespace: str, name: str) -> Viewed | None:
        obj = self._objects.get((kind, namespace, name))
        return obj if isinstance(obj, kind) else None

    def list(self, kind: type[Viewed], namespace: str, selector: Mapping[str, str]) -> list[Viewed]:
        """Return the objects whose labels match `selector`, sorted by name.

        The selector must contain a label in `INDEXED`.
        """
        indexed = next(label for label in INDEXED if label in selector)
        keys = self._index.get((kind, namespace, indexed, selector[indexed]), ())
        candidates = [self._objects[key] for key in sorted(keys)]
        required = selector.items()
        return [
            obj
            for obj in candidates
            if isinstance(obj, kind) and required <= obj.metadata.labels.items()
        ]

    def list_all(self, kind: type[Viewed]) -> Iterable[Viewed]:
        return [
            obj for key in self._index.get(kind, ()) if isinstance(obj := self._objects[key], kind)
        ]

    def count(self, kind: type[Object]) -> int:
        return len(self._index.get(kind, ()))

    def put(self, obj: Object, *, partition: int | None = None, is_reload: bool = False) -> bool:
        """Store an object unless its state is known or outdated; return whether anything changed.

        `partition` is the partition whose message delivered the object, or None if the API server
        returned the object to this process.

        A tombstone from one partition does not block a message from a different partition, because
        the object has moved there. A reload replaces a cached object of the same version, because a
        watcher of a different release may publish other fields. A message replaces an object of the
        same version that the API server returned, because that object may be incomplete; this does
        not count as a change.
        """
        key, version = make_key(obj), obj.metadata.version
        gone_at, reported_by = self._gone.get(key, (-1, None))
        if gone_at >= version and (partition is None or reported_by in (None, partition)):
            return False
        cached = self._objects.get(key)
        known_at = -1 if cached is None else cached.metadata.version
        is_newer = (
            cached is None
            or known_at < version
            or (known_at == version and is_reload and cached != obj)
        )
        is_fuller = known_at == version and partition is not None and self._partitions[key] is None
        if partition is None and cached is not None:
            partition = self._partitions[key]
        if not is_newer and not is_fuller:
            obj = cast("Object", cached)
        elif isinstance(obj, Pod):
            obj = self._shared.pod(obj)
        self._set(key, obj, partition)
        if is_newer and gone_at < version:
            self._gone.pop(key, None)
        return is_newer

    def remove(
        self,
        kind: type[Object],
        namespace: str,
        name: str,
        *,
        version: int,
        partition: int | None = None,
    ) -> Object | None:
        """Remove an object that was deleted at resourceVersion `version`, and keep a tombstone.

        `partition` is the partition that reported the deletion; None if the API server did. Returns
        the removed object; None if the cache does not have it, or only a newer one.
        """
        key = (kind, namespace, name)
        cached = self._objects.get(key)
        if cached is not None and cached.metadata.version > version:
            return None
        before = self._gone.pop(key, (-1, None))
        self._gone[key] = (version, partition) if version >= before[0] else before
        if len(self._gone) > REMEMBERED_DELETIONS:
            del self._gone[next(iter(self._gone))]
        self._set(key, None)
        if cached is not None:
            self._removed.append(cached)
        return cached

    def take_removed(self) -> Objects:
        """Return the objects that were removed since the last call of this method."""
        removed, self._removed = self._removed, []
        return removed

    def move(
        self, kind: type[Object], namespace: str, name: str, *, origin: int, to: int | None
    ) -> Object | None:
        """Record that an object moved from partition `origin` to partition `to`.

        If this replica does not follow the new partition, `to` is None and the object is dropped.
        It is also dropped if the new partition has already reported its deletion. Returns the
        object if it is dropped.
        """
        key = (kind, namespace, name)
        cached = self._objects.get(key)
        if cached is None or self._partitions.get(key) != origin:
            return None
        gone_at, reported_by = self._gone.get(key, (-1, None))
        is_dropped = to is None or (reported_by == to and gone_at >= cached.metadata.version)
        self._set(key, None if is_dropped else cached, to)
        return cached if is_dropped else None

    def partition_of(self, kind: type[Object], namespace: str, name: str) -> int | None:
        """Return the partition of an object.

        None if the object is unknown, or known only from an answer of the API server.
        """
        return self._partitions.get((kind, namespace, name))

    def objects_of(self, partition: int | None) -> Objects:
        """Return the objects of a partition (None: without a partition) in order of arrival."""
        return [self._objects[key] for key in self._index.get(partition, ())]

    def forget(self, objects: Iterable[Object]) -> None:
        """Drop objects without keeping tombstones, as if this replica had never read them."""
        for obj in objects:
            self._set(make_key(obj), None)

    def rewind(self, objects: Iterable[Object]) -> None:
        """Drop objects and all tombstones.

        Called if the resourceVersions of the Kubernetes cluster have gone back, as after a restore.
        """
        self.forget(objects)
        self._gone.clear()

    def list_deleted_names(
        self, kind: type[Object], namespace: str, *, prefix: str
    ) -> frozenset[str]:
        """Return the names of deleted objects that begin with `prefix`.

        Only the newest `REMEMBERED_DELETIONS` deletions are known.
        """
        return frozenset(
            name
            for view, where, name in self._gone
            if view is kind and where == namespace and name.startswith(prefix)
        )

    def remove_undelivered(
        self, delivered: Set[ObjectKey], among: Iterable[Object], *, listed_at: int
    ) -> Objects:
        """Remove and return the objects in `among` that a reload of the state did not deliver.

        `delivered` has the keys of the objects that the reload delivered, and `listed_at` is the
        resourceVersion of the watcher's list. Objects newer than this list stay: they are writes of
        this process, and their messages are still on the way. If NATS delivers a removed object
        later, it is stored again.
        """
        stale = [
            obj
            for obj in among
            if make_key(obj) not in delivered and obj.metadata.version <= listed_at
        ]
        for obj in stale:
            self.remove(*make_key(obj), version=listed_at, partition=UNKNOWN_PARTITION)
        return stale

    def _set(self, key: ObjectKey, obj: Object | None, partition: int | None = None) -> None:
        """Store an object, or drop it if `obj` is None; update the index."""
        before = self._index_entries(key)
        if obj is None:
            self._objects.pop(key, None)
            self._partitions.pop(key, None)
        else:
            self._objects[key], self._partitions[key] = obj, partition
        if (after := self._index_entries(key)) == before:
            return
        for index in set(before).difference(after):
            del self._index[index][key]
            if not self._index[index]:
                del self._index[index]
        for index in after:
            self._index[index][key] = None

    def _index_entries(self, key: ObjectKey) -> tuple[Hashable, ...]:
        if (obj := self._objects.get(key)) is None:
            return ()
        kind, namespace, _ = key
        obj_labels = obj.metadata.labels
        by_label = (
            (kind, namespace, label, obj_labels[label]) for label in INDEXED if label in obj_labels
        )
        return (kind, self._partitions[key], *by_label)
