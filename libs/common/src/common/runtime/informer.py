"""The informer of one controller: writes messages to the cache and enqueues their keys.

A key stands for a root object. It belongs to the partition that delivered the root object; before
that, to the partition that delivered one of its children. A key may be reconciled while this
replica holds the partition and its state is complete. When the state first becomes complete, every
key is enqueued once, which makes up for all earlier messages. Partitions are acquired and released
independently of each other.
"""

import asyncio
from collections.abc import Iterable, Iterator, Set
from typing import Final

import msgspec
import structlog

from common.api import go_json
from common.api.meta import Envelope, ObjectMeta, version_number
from common.bus.feed import PartitionListener
from common.bus.messages import ObjectMessage, ObjectState, Quarantined, Tombstone
from common.observability import metrics
from common.observability.tracing import ReconcileTraces
from common.runtime import cache as caches
from common.runtime.cache import Cache, Object, Objects
from common.runtime.key import Key, Quarantine, QuarantinedObject, Watched
from common.runtime.work_queue import WorkQueue

log = structlog.get_logger()

FOREIGN_MET: Final = 3
"""Number of `tidy` runs after which a cached object of a different replica is dropped."""


class Informer:
    """The partitions that one controller follows, and their objects in the cache."""

    def __init__(self, name: str, watched: Watched, *, cache: Cache, queue: WorkQueue[Key]) -> None:
        self.name = name
        self.watched = watched
        self.cache = cache
        self.queue = queue
        self.traces = ReconcileTraces()
        self.quarantine = Quarantine()
        self.followed: dict[int, _Partition] = {}
        self.partition_of: dict[Key, int] = {}
        """The partition of each known key."""
        self.was_synced = False
        self._foreign: dict[caches.ObjectKey, int] = {}
        metrics.PARTITIONS_HELD.labels(name).set_function(lambda: len(self.followed))
        metrics.PARTITIONS_LOADING.labels(name).set_function(lambda: self.loading)

    # --- partitions ---------------------------------------------------------------------------

    @property
    def loading(self) -> int:
        """Number of followed partitions whose state is not complete yet."""
        return sum(not partition.is_synced for partition in self.followed.values())

    def hold(self, partition: int) -> PartitionListener:
        """Start to follow a partition; return the listener that must get the partition's messages.

        The keys of the partition are reconciled once its state is complete.
        """
        self.followed[partition] = _Partition(self, partition)
        return self.followed[partition]

    def stop(self, partitions: Set[int]) -> None:
        """Ignore these partitions from now on; no reconcile of their keys may begin."""
        for number in self.followed.keys() & partitions:
            self.followed.pop(number).is_held = False

    def forget(self, partitions: Set[int]) -> Objects:
        """Drop the objects and keys of these stopped partitions; return the objects."""
        gone = self.objects_of(partitions)
        self.quarantine.release(partitions)
        for key in self.keys_in(partitions, self.partition_of):
            del self.partition_of[key]
            self.traces.forget(key)
            self.queue.forget(key)
        self.cache.forget(gone)
        return gone

    def keys_in(self, partitions: Set[int], keys: Iterable[Key]) -> set[Key]:
        """Return the `keys` that belong to the given partitions."""
        return {key for key in keys if self.partition_of.get(key) in partitions}

    def objects_of(self, partitions: Set[int]) -> Objects:
        """Return the objects of these partitions.

        Objects without a partition are included if they concern a key of one of the partitions.
        """
        cached = [
            obj for partition in sorted(partitions) for obj in self.cache.objects_of(partition)
        ]
        answers = self.cache.objects_of(None)
        return cached + [
            obj for obj in answers if self.keys_in(partitions, self.watched.keys_of(obj))
        ]

    # --- keys ---------------------------------------------------------------------------------

    def may_reconcile(self, key: Key) -> bool:
        """Return whether this replica may reconcile a key now.

        The replica must follow the key's partition, the state of the partition must be complete,
        and no object on which the key depends may be in quarantine.
        """
        partition = self._followed(key)
        return partition is not None and partition.is_synced and self.quarantine.find(key) is None

    def is_followed(self, key: Key) -> bool:
        """Return whether this replica follows the partition of a key."""
        return self._followed(key) is not None

    def defer(self, key: Key) -> None:
        """Have a key enqueued as soon as the state of its partition is complete again."""
        if (partition := self._followed(key)) is not None:
            partition.defer(key)

    def silent_since(self, key: Key) -> float | None:
        """Return since when the state of a key's partition has not been complete any more.

        The time is in seconds of the event loop. None if the state is complete or never was, if the
        key is in quarantine, or if this replica does not follow the partition.
        """
        partition = self._followed(key)
        return (
            None
            if partition is None or self.quarantine.find(key) is not None
            else partition.silent_since
        )

    def _followed(self, key: Key) -> "_Partition | None":
        """Return the partition of a key; None if this replica does not follow the partition."""
        return self.followed.get(self.partition_of.get(key, -1))

    def root(self, key: Key) -> Object | None:
        """Return the root object of a key from the cache; None if it is gone."""
        return self.cache.get(self.watched.get_root_type(key), key.namespace, key.name)

    def idle(self, key: Key) -> None:
        """Forget a key that is not enqueued, if its root object is gone.

        A key that waits for an object in quarantine is kept.
        """
        if self.root(key) is None and self.quarantine.find(key) is None:
            self.partition_of.pop(key, None)
            self.traces.forget(key)

    def tidy(self) -> None:
        """Drop cached objects that belong to no partition of this replica.

        Such an object was read from the API server by a reconcile, and no message updates it. It is
        dropped when the `FOREIGN_MET`-th consecutive call finds it.
        """
        foreign = {
            caches.make_key(obj): obj
            for obj in self.cache.objects_of(None)
            if not any(
                self.partition_of.get(key) in self.followed for key in self.watched.keys_of(obj)
            )
        }
        self._foreign = {key: self._foreign.get(key, 0) + 1 for key in foreign}
        self.cache.forget(foreign[key] for key, met in self._foreign.items() if met >= FOREIGN_MET)


class _Partition:
    """Takes the messages of one followed partition, as a `common.bus.feed.PartitionListener`.

    Once the partition is released, all messages are ignored.
    """

    def __init__(self, informer: Informer, number: int) -> None:
        self._informer = informer
        self._number = number
        self.is_held = True
        self.is_synced = False
        self.silent_since: float | None = None
        """Since when the state is not complete any more, in seconds of the event loop.

        None while the state is complete, and before it is complete for the first time.
        """
        self._loaded: set[caches.ObjectKey] | None = set()
        """Cache keys of the objects that the present load has delivered; None without a load."""
        self._due: dict[Key, None] | None = None
        """The keys to enqueue once the present load is complete: those that were changed or due.

        None during the first load, after which all keys are enqueued."""

    def loading(self, reason: str) -> None:
        if not self.is_held:
            return
        if self.is_synced:
            self.silent_since = asyncio.get_running_loop().time()
            self._due = {}
        self.is_synced = False
        self._loaded = set()
        informer = self._informer
        for key in informer.quarantine.release({self._number}):
            self.defer(key)
        if informer.was_synced or len(informer.followed) == 1:
            log.info("loading state", why=reason, partitions=informer.loading)
        informer.was_synced = False

    def rewound(self) -> None:
        """Drop the partition's objects, as resourceVersions in the cluster have gone back."""
        if self.is_held:
            self._informer.cache.rewind(self._informer.objects_of({self._number}))

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        """Write a message into the cache, and enqueue the keys that it concerns.

        During a load, the keys are enqueued when the load is complete. `trace` is the traceparent
        of the change, or "".
        """
        view, new = self._informer.watched.kinds.get(message.kind), None
        if view is None or not self.is_held:
            return
        match message:
            case ObjectState():
                keys, new = self._put(view, message, trace)
            case Quarantined():
                keys = self._quarantine(view, message, message.why)
            case Tombstone():
                keys = self._remove(view, message, trace)
        for key in keys:
            if self.is_synced:
                self._informer.queue.add(key, is_new=key == new)
            else:
                self.defer(key)

    def synced(self, version: int) -> None:
        """Drop the objects that the completed load did not deliver, and enqueue affected keys.

        After the first load, every key of the partition is affected.
        """
        if not self.is_held:
            return
        loaded, self._loaded, self.is_synced, self.silent_since = (
            self._loaded or set[caches.ObjectKey](),
            None,
            True,
            None,
        )
        informer = self._informer
        gone = informer.cache.remove_undelivered(
            loaded, informer.objects_of({self._number}), listed_at=version
        )
        waiting = informer.quarantine.keys_of(self._number) if self._due is None else self._due
        for key in waiting:
            informer.queue.add(key)
        for obj in (
            *gone,
            *(informer.cache.objects_of(self._number) if self._due is None else ()),
        ):
            for key in self._find_keys(obj, ""):
                informer.queue.add(key)
        if not informer.loading and not informer.was_synced:
            informer.was_synced = True
            objects, partitions = len(informer.cache), len(informer.followed)
            log.info("state synced", objects=objects, partitions=partitions, version=version)

    def defer(self, key: Key) -> None:
        """Have a key enqueued as soon as the present load is complete."""
        if not self.is_synced and self._due is not None:
            self._due[key] = None

    def _put(
        self, view: type[Object], state: ObjectState, trace: str
    ) -> tuple[Iterable[Key], Key | None]:
        """Store an object; return the keys it concerns, and its own key if it is a new root."""
        informer, cache = self._informer, self._informer.cache
        try:
            obj = msgspec.json.decode(state.body, type=view)
            list(informer.watched.keys_of(obj))
            misfit = go_json.misfit(obj)
            reason = (
                f"{misfit}; the CRDs of this version admit no such value"
                if misfit is not None
                else ""
            )
        except Exception as problem:  # noqa: BLE001  (other objects must not suffer)
            obj, reason = None, f"it does not decode: {problem!r}"
        if obj is None or reason:
            metrics.UNDECODABLE.labels(informer.name, state.kind).inc()
            return self._quarantine(view, state, reason), None
        place = caches.make_key(obj)
        own = informer.watched.find_root_key(*place)
        was_delivered = cache.partition_of(*place) is not None
        keys, is_new = informer.quarantine.pop(place), cache.get(*place) is None
        if self._loaded is not None:
            self._loaded.add(place)
        if cache.put(obj, partition=self._number, is_reload=not self.is_synced):
            return [*self._find_keys(obj, trace), *keys], own if is_new else None
        if own is not None and cache.partition_of(*place) == self._number:
            informer.partition_of[own] = self._number
            owner_keys = self._find_keys(obj, trace)
            # The cache may have this state from an answer to a reconcile of a different key, or to
            # a deletion by a reconcile of this key, which must still remove its finalizer.
            is_deleted = obj.metadata.deletion_timestamp is not None
            if not was_delivered or len(owner_keys) > 1 or is_deleted:
                return [*owner_keys, *keys], None if was_delivered else own
        return keys, None

    def _quarantine(
        self, view: type[Object], message: ObjectState | Quarantined, reason: str
    ) -> frozenset[Key]:
        """Put an object with an unreadable state in quarantine; return the keys that wait for it.

        The last readable state of the object stays in the cache.
        """
        informer = self._informer
        try:
            about = msgspec.json.decode(message.body, type=Envelope)
        except Exception:  # noqa: BLE001  (see above)
            about = Envelope(ObjectMeta(namespace=message.namespace, name=message.name))
        meta = about.metadata
        place, text = (
            (view, meta.namespace, meta.name),
            f"{message.kind} {meta.namespace}/{meta.name}",
        )
        log.warning("object quarantined", object=text, why=reason)
        own = informer.watched.find_root_key(*place)
        if own is not None:
            keys = frozenset({own})
        else:
            keys = frozenset(informer.watched.keys_of(informer.cache.get(*place) or about))
        informer.quarantine.put(
            place, QuarantinedObject(self._number, keys, meta, f"{text} is in quarantine: {reason}")
        )
        for key in keys:
            informer.partition_of.setdefault(key, self._number)
        if self._loaded is not None:
            self._loaded.add(place)
        return keys

    def _remove(self, view: type[Object], gone: Tombstone, trace: str) -> Iterator[Key]:
        """Remove an object from the cache, and yield the keys that it concerned.

        If it has moved to a different partition that this replica follows, its state stays in the
        cache until that partition delivers a new one.
        """
        informer, cache, to = self._informer, self._informer.cache, gone.moved_to
        place = (view, gone.namespace, gone.name)
        own = informer.watched.find_root_key(*place)
        yield from informer.quarantine.pop(place, partition=self._number)
        if to is None:
            obj = cache.remove(*place, version=version_number(gone.version), partition=self._number)
        else:
            # A move does not change the object, so it gets no trace.
            followed, trace = to.partition if to.partition in informer.followed else None, ""
            obj = cache.move(*place, origin=self._number, to=followed)
        if obj is not None:
            yield from self._find_keys(obj, trace)
        elif to is not None and own is not None and cache.partition_of(*place) == to.partition:
            informer.partition_of[own] = to.partition

    def _find_keys(self, obj: Object, trace: str) -> list[Key]:
        """Return the keys to reconcile for an object, and record the partition of each key."""
        informer = self._informer
        own = informer.watched.find_root_key(*caches.make_key(obj))
        keys = list(informer.watched.keys_of(obj))
        for key in keys:
            if key == own:
                informer.partition_of[key] = self._number
            else:
                informer.partition_of.setdefault(key, self._number)
            informer.traces.enqueued(key, trace, waits=self.is_synced)
        return keys
