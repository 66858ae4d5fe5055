"""The informer of one controller: writes messages to the cache and enqueues their keys.

A key stands for a root object. It belongs to the partition that delivered that object or, until one
does, to the partition that delivered an object below it. It may be reconciled while its partition
is held and the state of the partition is complete. When the state becomes complete, every key is
enqueued once, which makes up for all earlier messages. Partitions are acquired and released
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
"""Number of `tidy` runs after which an object of another replica is dropped from the cache."""


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
        """The partition of each key that was ever enqueued."""
        self.was_synced = False
        self._foreign: dict[caches.ObjectKey, int] = {}
        metrics.PARTITIONS_HELD.labels(name).set_function(lambda: len(self.followed))
        metrics.PARTITIONS_LOADING.labels(name).set_function(lambda: self.loading)

    # --- partitions ---------------------------------------------------------------------------

    @property
    def loading(self) -> int:
        """Number of followed partitions without a complete state."""
        return sum(not partition.is_synced for partition in self.followed.values())

    def hold(self, partition: int) -> PartitionListener:
        """Start to follow a partition; return the listener for its feed.

        Its keys are reconciled once its state is complete.
        """
        self.followed[partition] = _Partition(self, partition)
        return self.followed[partition]

    def stop(self, partitions: Set[int]) -> None:
        """Ignore some partitions from now on; none of their keys may be reconciled."""
        for number in self.followed.keys() & partitions:
            self.followed.pop(number).is_held = False

    def forget(self, partitions: Set[int]) -> Objects:
        """Drop the objects and keys of some stopped partitions; return the objects."""
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
        """Return the objects of some partitions.

        These include objects without a partition that concern a key of the partitions.
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

        Its partition must be followed and complete, and no object that it depends on may be in
        quarantine.
        """
        partition = self._followed(key)
        return partition is not None and partition.is_synced and self.quarantine.find(key) is None

    def is_followed(self, key: Key) -> bool:
        """Return whether the partition of a key is followed."""
        return self._followed(key) is not None

    def defer(self, key: Key) -> None:
        """Enqueue a key once the state of its partition is complete."""
        if (partition := self._followed(key)) is not None:
            partition.defer(key)

    def silent_since(self, key: Key) -> float | None:
        """Return the time since which the bus has sent nothing about a key.

        The time is in seconds of the event loop. None while the bus delivers, and for a key that
        is in quarantine or whose partition this replica does not follow.
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
        """Return the root object of a key; None if it is gone."""
        return self.cache.get(self.watched.get_root_type(key), key.namespace, key.name)

    def idle(self, key: Key) -> None:
        """Forget a key without a pending request if its object is gone.

        A key that waits for an object in quarantine is kept.
        """
        if self.root(key) is None and self.quarantine.find(key) is None:
            self.partition_of.pop(key, None)
            self.traces.forget(key)

    def tidy(self) -> None:
        """Drop cached objects that belong to no partition of this replica.

        A reconcile has read such an object from the API server, and no message updates it. It is
        dropped at the `FOREIGN_MET`-th call that meets it.
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
    """One followed partition; implements `common.bus.feed.PartitionListener`.

    Once the partition is released, it ignores all messages.
    """

    def __init__(self, informer: Informer, number: int) -> None:
        self._informer = informer
        self._number = number
        self.is_held = True
        self.is_synced = False
        self.silent_since: float | None = None
        """When the last complete state ended, in seconds of the event loop.

        None while the state is complete, and before the first complete state: until then the cache
        does not show the cluster.
        """
        self._loaded: set[caches.ObjectKey] | None = set()
        """Keys in the cache of the objects that the running load delivered; None when no load
        runs.
        """
        self._due: dict[Key, None] | None = None
        """The keys with a change, or whose time has come, to reconcile once the load is complete.

        None stands for every key, as after the first load.
        """

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
        """Drop the objects of the partition, including those from answers of the API server."""
        if self.is_held:
            self._informer.cache.rewind(self._informer.objects_of({self._number}))

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        """Write a message into the cache, and enqueue the keys it concerns.

        During a load, the keys are enqueued when the load is complete. `trace` is the traceparent
        of the change, or empty.
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
        """Drop objects that the load did not deliver, and enqueue each concerned key once.

        After the first load these are all keys of the partition.
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
        """Enqueue a key when the running load is complete."""
        if not self.is_synced and self._due is not None:
            self._due[key] = None

    def _put(
        self, view: type[Object], state: ObjectState, trace: str
    ) -> tuple[Iterable[Key], Key | None]:
        """Store an object; return the keys it concerns, and its own key if it is new."""
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
        except Exception as problem:  # noqa: BLE001  (other objects must go on)
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
            # A reconcile may have written this state, and cached the answer: that of another key,
            # or a deletion by this key, which must still remove its finalizer.
            is_deleted = obj.metadata.deletion_timestamp is not None
            if not was_delivered or len(owner_keys) > 1 or is_deleted:
                return [*owner_keys, *keys], None if was_delivered else own
        return keys, None

    def _quarantine(
        self, view: type[Object], message: ObjectState | Quarantined, reason: str
    ) -> frozenset[Key]:
        """Put an object with an unreadable state in quarantine; return the keys that wait for it.

        The cache keeps the object's last state.
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

        After a move to another followed partition the old state stays until that partition delivers
        a new one.
        """
        informer, cache, to = self._informer, self._informer.cache, gone.moved_to
        place = (view, gone.namespace, gone.name)
        own = informer.watched.find_root_key(*place)
        yield from informer.quarantine.pop(place, partition=self._number)
        if to is None:
            obj = cache.remove(*place, version=version_number(gone.version), partition=self._number)
        else:
            # A move is not a change, so it gets no trace.
            followed, trace = to.partition if to.partition in informer.followed else None, ""
            obj = cache.move(*place, origin=self._number, to=followed)
        if obj is not None:
            yield from self._find_keys(obj, trace)
        elif to is not None and own is not None and cache.partition_of(*place) == to.partition:
            informer.partition_of[own] = to.partition

    def _find_keys(self, obj: Object, trace: str) -> list[Key]:
        """Return the keys that an object concerns; record that they belong to this partition."""
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
