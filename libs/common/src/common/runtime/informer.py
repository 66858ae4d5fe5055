"""The informer of one controller: writes the messages of each partition into the cache and enqueues the keys that they concern.

A key is a root object. It belongs to the partition that shows that object or, as long as none does, to the partition that showed an
object below it. It may be reconciled while its partition is held and its state is complete; every key is then enqueued once, which
makes up for all earlier messages. Partitions come and go one by one and are independent.
"""

import asyncio
from collections.abc import Iterable, Set
from contextlib import AbstractContextManager
from typing import Final, Protocol

import msgspec
import structlog

from common.api import go_shape
from common.api.meta import ObjectMeta
from common.bus.feed import Listener
from common.observability import metrics, ownership
from common.runtime import cache as caches
from common.runtime.cache import Cache, Object, Objects
from common.runtime.key import Key, Watched
from common.runtime.quarantine import Held, Quarantine
from common.runtime.trace import ReconcileTraces

log = structlog.get_logger()

FOREIGN_MET: Final = 3
"""Runs of `tidy` that an object of another replica stays in the cache."""


class Enqueue(Protocol):
    """Enqueues a key; `is_new` when its object has just been created."""

    def __call__(self, key: Key, *, is_new: bool = False) -> None: ...


class _Metadata(msgspec.Struct, frozen=True):
    """The known part of an object in quarantine."""

    metadata: ObjectMeta


class Informer:
    """The partitions that one controller follows."""

    def __init__(self, name: str, watched: Watched, *, cache: Cache, enqueue: Enqueue) -> None:
        self._name = name
        self._kinds = watched.kinds
        self._root = watched.root
        self._keys_of = watched.keys_of
        self._cache = cache
        self._enqueue = enqueue
        self._followed: dict[int, _Partition] = {}
        self._partition_of: dict[Key, int] = {}
        """The partition of each key that was ever enqueued."""
        self._traces: ReconcileTraces[Key] = ReconcileTraces()
        self._quarantine = Quarantine()
        self._foreign: dict[caches.Key, int] = {}
        self._was_synced = False

    # --- which partitions --------------------------------------------------------------------------------------------

    def hold(self, partition: int) -> Listener:
        """Begin to follow a partition; return the listener of its feed."""
        listener = self._followed[partition] = _Partition(self, partition)
        self._measure()
        return listener

    def stop(self, partitions: Iterable[int]) -> None:
        """Ignore some partitions from now on; none of their keys may be reconciled."""
        for each in partitions:
            stopped = self._followed.pop(each, None)
            if stopped is not None:
                stopped.is_held = False
        self._measure()

    def forget(self, partitions: Set[int]) -> tuple[Objects, list[Key]]:
        """Drop the objects of some stopped partitions; return them, and the keys that this replica no longer owns."""
        gone = self._objects_of(partitions)
        keys = [key for key, place in self._partition_of.items() if place in partitions]
        self._quarantine.release(partitions)
        for key in keys:
            del self._partition_of[key]
            self._traces.forget(key)
        self._cache.forget(gone)
        return gone, keys

    def keys_in(self, partitions: Set[int], keys: Iterable[Key]) -> set[Key]:
        """Return those keys that belong to some partitions."""
        return {key for key in keys if self._partition_of.get(key) in partitions}

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that are read."""
        return frozenset(self._kinds)

    @property
    def held(self) -> frozenset[int]:
        """Return the partitions that are followed."""
        return frozenset(self._followed)

    @property
    def loading(self) -> int:
        """Count the followed partitions without a complete state."""
        return sum(not each.is_synced for each in self._followed.values())

    # --- which keys --------------------------------------------------------------------------------------------------

    def may_reconcile(self, key: Key) -> bool:
        """Return whether decisions about a key are ours and may be taken."""
        partition = self._followed.get(self._partition_of.get(key, -1))
        return partition is not None and partition.is_synced and not self._quarantine.holds(key)

    def silent_since(self, key: Key) -> float | None:
        """Return since when the bus has sent nothing about a key that is ours, by the event loop's clock.

        None while it does, and before its state was complete once: until then the cache is not an observation of the cluster.
        """
        partition = self._followed.get(self._partition_of.get(key, -1))
        return None if partition is None or self._quarantine.holds(key) else partition.silent_since

    def quarantine_of(self, key: Key) -> tuple[ObjectMeta, str] | None:
        """Return what is known of a key's object, and which object in quarantine it waits for; None when it waits for none."""
        held = self._quarantine.of(key)
        if held is None:
            return None
        root = self._cache.get(self._root, key.namespace, key.name)
        return (root.metadata if root is not None else held.metadata), held.why

    def reconciling(self, key: Key) -> AbstractContextManager[None]:
        """Run a reconcile under the trace of the newest change that enqueued its key."""
        return self._traces.reconciling(key)

    def idle(self, key: Key) -> None:
        """Forget a key without a pending request, if its object is gone."""
        if self._cache.get(self._root, key.namespace, key.name) is None:
            self._partition_of.pop(key, None)
            self._traces.forget(key)

    def tidy(self) -> None:
        """Drop what a reconcile read of objects of other partitions: no message updates these."""
        foreign = {
            caches.key_of(each): each
            for each in self._cache.unassigned()
            if not any(self._partition_of.get(key) in self._followed for key in self._keys_of(each))
        }
        self._foreign = {key: self._foreign.get(key, 0) + 1 for key in foreign}
        self._cache.forget(foreign[key] for key, met in self._foreign.items() if met >= FOREIGN_MET)

    # --- messages of a partition's feed -------------------------------------------------------------------------------

    def on_changed(self, partition: "_Partition", kind: str, body: bytes, trace: str) -> caches.Key | None:
        """Put an object into the cache and enqueue the keys that it concerns; return its cache key."""
        view = self._kinds.get(kind)
        if view is None:
            return None
        try:
            obj = msgspec.json.decode(body, type=view)
            list(self._keys_of(obj))
        except Exception as problem:  # noqa: BLE001  (whatever one object does to a decoder, the others go on)
            metrics.UNDECODABLE.labels(self._name, kind).inc()
            return self.on_quarantined(partition, kind, None, body, f"it does not decode: {problem!r}")
        if (misfit := go_shape.misfit(obj)) is not None:
            metrics.UNDECODABLE.labels(self._name, kind).inc()
            return self.on_quarantined(
                partition, kind, None, body, f"{misfit}; the CRDs of this version admit no such value"
            )
        key = caches.key_of(obj)
        released = self._quarantine.pop((kind, key[1], key[2]))
        is_new = self._cache.get(view, key[1], key[2]) is None
        if self._cache.put(obj, partition=partition.number, is_reload=not partition.is_synced):
            self._enqueue_keys_of(partition, obj, trace, is_new=is_new)
        elif view is self._root and self._cache.partition_of(*key) == partition.number:
            self._partition_of[Key(key[1], key[2])] = partition.number
        self._enqueue_all(partition, released)
        return key

    def on_quarantined(
        self, partition: "_Partition", kind: str, place: tuple[str, str] | None, body: bytes, why: str
    ) -> caches.Key | None:
        """Make the keys of an object with an unknown state wait; the cache keeps its last state. Return its cache key."""
        view = self._kinds.get(kind)
        if view is None:
            return None
        try:
            about = msgspec.json.decode(body, type=_Metadata)
        except Exception:  # noqa: BLE001  (see above)
            about = _Metadata(ObjectMeta(namespace=place[0], name=place[1]) if place else ObjectMeta())
        meta = about.metadata
        log.warning("an object is in quarantine", object=f"{kind} {meta.namespace}/{meta.name}", why=why)
        keys = self._keys_of_metadata(view, about)
        why = f"{kind} {meta.namespace}/{meta.name} is in quarantine: {why}"
        self._quarantine.put((kind, meta.namespace, meta.name), Held(partition.number, keys, meta, why))
        for key in keys:
            self._partition_of.setdefault(key, partition.number)
        self._enqueue_all(partition, keys)
        return view, meta.namespace, meta.name

    def _keys_of_metadata(self, view: type[Object], about: _Metadata) -> frozenset[Key]:
        meta = about.metadata
        if view is self._root:
            return frozenset({Key(meta.namespace, meta.name)})
        known = self._cache.get(view, meta.namespace, meta.name)
        return frozenset(self._keys_of(known if known is not None else about))

    def _enqueue_all(self, partition: "_Partition", keys: Iterable[Key]) -> None:
        for key in keys:
            if partition.is_synced:
                self._enqueue(key)

    def on_removed(self, partition: "_Partition", kind: str, place: tuple[str, str], version: int, trace: str) -> None:
        """Take an object out of the cache and enqueue the keys that it concerned."""
        view = self._kinds.get(kind)
        if view is None:
            return
        self._enqueue_all(partition, self._quarantine.pop((kind, *place), partition=partition.number))
        known = self._cache.get(view, *place)
        if self._cache.remove(view, *place, version=version, partition=partition.number) and known is not None:
            self._enqueue_keys_of(partition, known, trace)

    def on_moved(self, partition: "_Partition", kind: str, place: tuple[str, str], to: int | None) -> None:
        """Handle a move to another partition (None: one that is not followed); the old state counts until that partition sends one."""
        view = self._kinds.get(kind)
        if view is None:
            return
        self._enqueue_all(partition, self._quarantine.pop((kind, *place), partition=partition.number))
        gone = self._cache.move(view, *place, origin=partition.number, to=to if to in self._followed else None)
        if gone is not None:
            self._enqueue_keys_of(partition, gone, "")
        elif to is not None and view is self._root and self._cache.partition_of(view, *place) == to:
            self._partition_of[Key(*place)] = to

    def on_synced(self, partition: "_Partition", loaded: Set[caches.Key], version: int) -> None:
        """Drop what a load did not bring, and enqueue every key of the partition once."""
        known = self._objects_of({partition.number})
        for gone in self._cache.keep_only(loaded, known, listed_at=version):
            self._enqueue_keys_of(partition, gone, "")
        for each in self._cache.objects_of(partition.number):
            self._enqueue_keys_of(partition, each, "")
        self._measure()
        if not self.loading and not self._was_synced:
            self._was_synced = True
            log.info("state is synced", objects=len(self._cache), partitions=len(self._followed), version=version)

    def on_rewound(self, partition: "_Partition") -> None:
        """Forget the objects of a partition, and what answers brought: versions began again at a lower one."""
        self._cache.rewind(self._objects_of({partition.number}))

    def on_loading(self, partition: "_Partition", why: str) -> None:
        """Handle the start of a reload of a partition."""
        self._quarantine.release({partition.number})
        if self._was_synced or len(self._followed) == 1:
            log.info("state is loading", why=why, partitions=self.loading)
        self._was_synced = False
        self._measure()

    def _enqueue_keys_of(self, partition: "_Partition", obj: Object, trace: str, *, is_new: bool = False) -> None:
        own = Key(obj.metadata.namespace, obj.metadata.name)
        is_root = isinstance(obj, self._root)
        for key in self._keys_of(obj):
            if is_root and key == own:
                self._partition_of[key] = partition.number
            else:
                self._partition_of.setdefault(key, partition.number)
            self._traces.enqueued(key, trace, waits=partition.is_synced)
            if partition.is_synced:
                self._enqueue(key, is_new=is_new and key == own)

    def _objects_of(self, partitions: Set[int]) -> Objects:
        """Return the objects of some partitions, and those without a partition that concern a key of these."""
        known = [each for partition in sorted(partitions) for each in self._cache.objects_of(partition)]
        unassigned = self._cache.unassigned()
        known += [each for each in unassigned if self.keys_in(partitions, self._keys_of(each))]
        return known

    def _measure(self) -> None:
        ownership.PARTITIONS_HELD.labels(self._name).set(len(self._followed))
        ownership.PARTITIONS_LOADING.labels(self._name).set(self.loading)


class _Partition:
    """One followed partition; implements `common.bus.feed.Listener`."""

    def __init__(self, informer: Informer, number: int) -> None:
        self._informer = informer
        self.number = number
        self.is_held = True
        self.is_synced = False
        self.silent_since: float | None = None
        """When the last complete state ceased to count; None while it counts, and before the first."""
        self._loaded: set[caches.Key] | None = set()
        """Objects of the running load; None when no load runs."""

    def loading(self, why: str) -> None:
        if self.is_synced:
            self.silent_since = asyncio.get_running_loop().time()
        self.is_synced = False
        self._loaded = set()
        if self.is_held:
            self._informer.on_loading(self, why)

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        if not self.is_held:
            return
        key = self._informer.on_changed(self, kind, body, trace)
        if key is not None and self._loaded is not None:
            self._loaded.add(key)

    def rewound(self) -> None:
        if self.is_held:
            self._informer.on_rewound(self)

    def quarantined(self, kind: str, namespace: str, name: str, *, body: bytes, why: str) -> None:
        if not self.is_held:
            return
        key = self._informer.on_quarantined(self, kind, (namespace, name), body, why)
        if key is not None and self._loaded is not None:
            self._loaded.add(key)

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        if self.is_held:
            self._informer.on_removed(self, kind, (namespace, name), version, trace)

    def moved(self, kind: str, namespace: str, name: str, *, to: int | None) -> None:
        if self.is_held:
            self._informer.on_moved(self, kind, (namespace, name), to)

    def synced(self, version: int) -> None:
        if not self.is_held:
            return
        loaded, self._loaded, self.is_synced, self.silent_since = self._loaded or set[caches.Key](), None, True, None
        self._informer.on_synced(self, loaded, version)
