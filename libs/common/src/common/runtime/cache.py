"""The informer cache of one replica: the state that the bus delivered, and the answers to our own writes.

An answer goes in at once, so a reconcile reads its own writes; an older message is ignored by its resourceVersion (design rule 5).
The answer to a deletion hides the object until the bus confirms it.

Each partition of the stream is delivered by itself, so the cache knows the partition of an object: a reload or a hand-over of one
partition changes nothing of another. An object that only an answer brought has no partition yet.
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

INDEXED: Final = (labels.CLUSTER, labels.ORIGIN_NAME, labels.SERVICE_NAME)
"""Labels that lists are asked by."""
REMEMBERED_DELETIONS: Final = 10_000
"""An answer is late by seconds, so the newest deletions are enough."""
MOST_SHARED: Final = 2048
"""Parts that are remembered for sharing; beyond, all are forgotten, which costs memory and nothing else."""
LARGEST_SHARED: Final = 16 * 2**10
"""Bytes of a part; a larger one is a pod's own."""
NONE_IN_PARTICULAR: Final = -1
"""Stands for the partition where a reload finds that an object is gone: any partition's later message counts more."""


class Object(Protocol):
    """Any object view: what the cache needs is its metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T")
Viewed = TypeVar("Viewed", bound=Object)
Objects = list[Object]
Key = tuple[type, str, str]
Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")
REMEMBERED: Final = 8192
ROOM: Final = 64 * 2**20
"""Characters or bytes of what has a size."""


class Remembered(MutableMapping[Name, Value]):
    """What a process remembers of most objects; what was set longest ago makes room, for values with a `size` as for their number.

    `dropped` gets each value that is deleted or makes room, but none that another replaces.
    """

    def __init__(
        self,
        *,
        most: int | None = None,
        size: Callable[[Name, Value], int] = lambda _name, _value: 0,
        dropped: Callable[[Value], object] = lambda _value: None,
    ) -> None:
        self._held: OrderedDict[Name, tuple[Value, int]] = OrderedDict()
        self._most = REMEMBERED if most is None else most
        self._size_of = size
        self._dropped = dropped
        self._size = 0

    def __getitem__(self, key: Name) -> Value:
        return self._held[key][0]

    def __setitem__(self, key: Name, value: Value) -> None:
        size, before = self._size_of(key, value), self._held.get(key)
        self._size += size if before is None else size - before[1]
        self._held[key] = value, size
        self._held.move_to_end(key)
        while len(self._held) > self._most or self._size > ROOM:
            del self[next(iter(self._held))]

    def __delitem__(self, key: Name) -> None:
        value, size = self._held.pop(key)
        self._size -= size
        self._dropped(value)

    def __iter__(self) -> Iterator[Name]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def key_of(obj: Object) -> Key:
    """Return where the cache keeps an object."""
    return type(obj), obj.metadata.namespace, obj.metadata.name


class Shared:
    """Parts of pods that are equal, each kept once: pods of a group differ in little but their names, and start together."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, bytes], object] = {}

    def pod(self, pod: Pod) -> Pod:
        """Return an equal pod of shared parts."""
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
        if len(encoded := msgspec.msgpack.encode(part)) > LARGEST_SHARED:
            return part
        if len(self._held) >= MOST_SHARED:
            self._held.clear()
        return cast("T", self._held.setdefault((name, encoded), part))


class Cache:
    """Objects by type, namespace and name, with an index over the labels that lists are asked by."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._shared = Shared()
        self._partitions: dict[Key, int | None] = {}
        """The partition that showed an object last; None while only answers have brought it."""
        self._index: defaultdict[Hashable, dict[Key, None]] = defaultdict(dict)
        """Keys by kind, by partition and by label, each in the order of arrival."""
        self._gone: dict[Key, tuple[int, int | None]] = {}
        """Tombstones: deleted objects with the version of their deletion and the partition that reported it (None: an answer), so that
        nothing older brings them back; newest last."""
        self._removed: Objects = []
        """What was removed since `take_removed` was called last."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, kind: type[Viewed], namespace: str, name: str) -> Viewed | None:
        """Return one object."""
        found = self._objects.get((kind, namespace, name))
        return found if isinstance(found, kind) else None

    def list(self, kind: type[Viewed], namespace: str, selector: Mapping[str, str]) -> list[Viewed]:
        """Return all objects with matching labels, by name; the selector must name an indexed label."""
        indexed = next(label for label in INDEXED if label in selector)
        keys = self._index.get((kind, namespace, indexed, selector[indexed]), ())
        found = [self._objects[key] for key in sorted(keys)]
        wanted = selector.items()
        return [
            each
            for each in found
            if isinstance(each, kind) and wanted <= each.metadata.labels.items()
        ]

    def all(self, kind: type[Viewed]) -> Iterable[Viewed]:
        """Return every object of a type."""
        return [
            each
            for key in self._index.get(kind, ())
            if isinstance(each := self._objects[key], kind)
        ]

    def count(self, kind: type[Object]) -> int:
        """Return how many objects of a type there are."""
        return len(self._index.get(kind, ()))

    def put(self, obj: Object, *, partition: int | None = None, is_reload: bool = False) -> bool:
        """Take an object in, unless we know the same or a newer state; return whether anything changed.

        `partition` is that of the message that shows it, None for the answer to a request of ours. A partition's tombstone does not count
        against another partition that shows the object: it has moved there. A reload counts also in the same version: a watcher of
        another build may publish other fields of it. A message replaces the answer of the same version, which may be a part of the object,
        and that is no change.
        """
        key, version = key_of(obj), obj.metadata.version
        gone_at, reported_by = self._gone.get(key, (-1, None))
        if gone_at >= version and (partition is None or reported_by in (None, partition)):
            return False
        known = self._objects.get(key)
        known_at = -1 if known is None else known.metadata.version
        is_newer = (
            known is None
            or known_at < version
            or (known_at == version and is_reload and known != obj)
        )
        is_fuller = known_at == version and partition is not None and self._partitions[key] is None
        if partition is None and known is not None:
            partition = self._partitions[key]
        if not is_newer and not is_fuller:
            obj = cast("Object", known)
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
        """Forget an object that was gone at a version; return it, None if it is not known, or newer."""
        key = (kind, namespace, name)
        known = self._objects.get(key)
        if known is not None and known.metadata.version > version:
            return None
        before = self._gone.pop(key, (-1, None))
        self._gone[key] = (version, partition) if version >= before[0] else before
        if len(self._gone) > REMEMBERED_DELETIONS:
            del self._gone[next(iter(self._gone))]
        self._set(key, None)
        if known is not None:
            self._removed.append(known)
        return known

    def take_removed(self) -> Objects:
        """Return the objects that were removed since this was called last."""
        removed, self._removed = self._removed, []
        return removed

    def move(
        self, kind: type[Object], namespace: str, name: str, *, origin: int, to: int | None
    ) -> Object | None:
        """Record that an object moved to another partition that we follow (None: that we do not follow).

        Return the object if it is no longer known for that reason. A tombstone of the other partition counts for more.
        """
        key = (kind, namespace, name)
        known = self._objects.get(key)
        if known is None or self._partitions.get(key) != origin:
            return None
        gone_at, reported_by = self._gone.get(key, (-1, None))
        is_dropped = to is None or (reported_by == to and gone_at >= known.metadata.version)
        self._set(key, None if is_dropped else known, to)
        return known if is_dropped else None

    def partition_of(self, kind: type[Object], namespace: str, name: str) -> int | None:
        """Return the partition of an object; None when only an answer brought it."""
        return self._partitions.get((kind, namespace, name))

    def objects_of(self, partition: int | None) -> Objects:
        """Return the objects of a partition, in the order of their arrival; None: those that only answers have brought."""
        return [self._objects[key] for key in self._index.get(partition, ())]

    def forget(self, objects: Iterable[Object]) -> None:
        """Drop objects that live on, and that another replica reconciles."""
        for each in objects:
            self._set(key_of(each), None)

    def rewind(self, objects: Iterable[Object]) -> None:
        """Drop objects, and all that is known of deletions: versions began again at a lower one."""
        self.forget(objects)
        self._gone.clear()

    def deleted(self, kind: type[Object], namespace: str, *, prefix: str) -> frozenset[str]:
        """Return the names that begin with a prefix and belonged to objects that are gone, as far as we remember."""
        return frozenset(
            name
            for view, where, name in self._gone
            if view is kind and where == namespace and name.startswith(prefix)
        )

    def keep_only(self, seen: Set[Key], among: Iterable[Object], *, listed_at: int) -> Objects:
        """Forget and return what a reload did not bring, and the watcher's list at `listed_at` would have held.

        What is newer than that list stays: it is our own write, and its message is still on the way. What the bus shows
        later is there again.
        """
        stale = [
            each
            for each in among
            if key_of(each) not in seen and each.metadata.version <= listed_at
        ]
        for each in stale:
            self.remove(*key_of(each), version=listed_at, partition=NONE_IN_PARTICULAR)
        return stale

    def _set(self, key: Key, obj: Object | None, partition: int | None = None) -> None:
        """Store an object, in its places of the index; drop it for None."""
        before = self._places(key)
        if obj is None:
            self._objects.pop(key, None)
            self._partitions.pop(key, None)
        else:
            self._objects[key], self._partitions[key] = obj, partition
        if (after := self._places(key)) == before:
            return
        for index in set(before).difference(after):
            del self._index[index][key]
            if not self._index[index]:
                del self._index[index]
        for index in after:
            self._index[index][key] = None

    def _places(self, key: Key) -> tuple[Hashable, ...]:
        """Return where the index has a key; nowhere without an object."""
        if (obj := self._objects.get(key)) is None:
            return ()
        kind, namespace, _ = key
        held = obj.metadata.labels
        by_label = ((kind, namespace, label, held[label]) for label in INDEXED if label in held)
        return (kind, self._partitions[key], *by_label)
