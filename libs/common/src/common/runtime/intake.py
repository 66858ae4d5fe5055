"""What the bus tells one controller, partition by partition: into the cache, and on to the keys that it concerns.

A key is a root object. It belongs to the partition that shows that object or, as long as none does, to the one that showed
something below it. It may be looked at while its partition is held and has been told completely; the look that then follows
for every key makes up for all that was told before. Partitions come and go one by one and touch nothing of each other.
"""

import asyncio
from collections.abc import Callable, Iterable, Set
from contextlib import AbstractContextManager
from typing import Final

import msgspec
import structlog

from common.api import go_shape
from common.api.meta import ObjectMeta
from common.bus import cache as caches
from common.bus.cache import Cache, Object, Objects
from common.bus.feed import Listener
from common.observability import metrics, ownership
from common.runtime.key import Key, Watched
from common.runtime.quarantine import Held, Quarantine
from common.runtime.trace import Wakers

log = structlog.get_logger()

STRANGER_MET: Final = 3
"""So many times `tidy` meets an object of somebody else before it goes."""


Wake = Callable[[Key, bool], None]
"""Asks for a look at a key; with True when its object has just been created."""


class _Metadata(msgspec.Struct, frozen=True):
    """As much of an object as is known of one in quarantine."""

    metadata: ObjectMeta


class Intake:
    """The partitions that one controller follows."""

    def __init__(self, name: str, watched: Watched, *, cache: Cache, wake: Wake) -> None:
        self._name = name
        self._kinds = watched.kinds
        self._root = watched.root
        self._keys_of = watched.keys_of
        self._cache = cache
        self._tell = wake
        self._followed: dict[int, _Partition] = {}
        self._places: dict[Key, int] = {}
        """The partition of each key that was ever woken."""
        self._wakers: Wakers[Key] = Wakers()
        self._quarantine = Quarantine()
        self._strangers: dict[caches.Key, int] = {}
        self._was_synced = False

    # --- which partitions --------------------------------------------------------------------------------------------

    def hold(self, partition: int) -> Listener:
        """Begin to follow a partition; return who is to be told about it."""
        listener = self._followed[partition] = _Partition(self, partition)
        self._measure()
        return listener

    def stop(self, partitions: Iterable[int]) -> None:
        """Take no more notice of some partitions; no key of theirs may be looked at from now on."""
        for each in partitions:
            stopped = self._followed.pop(each, None)
            if stopped is not None:
                stopped.is_held = False
        self._measure()

    def forget(self, partitions: Set[int]) -> tuple[Objects, list[Key]]:
        """Drop all that some stopped partitions showed; return it, and the keys that are nobody's here."""
        gone = [each for partition in sorted(partitions) for each in self._cache.residents(partition)]
        gone += [each for each in self._cache.homeless() if self._is_among(each, partitions)]
        keys = [key for key, place in self._places.items() if place in partitions]
        self._quarantine.release(partitions)
        for key in keys:
            del self._places[key]
            self._wakers.forget(key)
        self._cache.forget(gone)
        return gone, keys

    def keys_in(self, partitions: Set[int], keys: Iterable[Key]) -> set[Key]:
        """Return those keys that belong to some partitions."""
        return {key for key in keys if self._places.get(key) in partitions}

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
        """Count the followed partitions that are not told completely yet."""
        return sum(not each.is_synced for each in self._followed.values())

    # --- which keys --------------------------------------------------------------------------------------------------

    def may_look(self, key: Key) -> bool:
        """Tell whether decisions about a key are ours and may be taken."""
        partition = self._followed.get(self._places.get(key, -1))
        return partition is not None and partition.is_synced and not self._quarantine.holds(key)

    def silent_since(self, key: Key) -> float | None:
        """Return since when the bus does not tell of a key that is ours, by the event loop's clock.

        None while it does, and before it told of all once: then what is known here is no observation of anything.
        """
        partition = self._followed.get(self._places.get(key, -1))
        return None if partition is None or self._quarantine.holds(key) else partition.silent_since

    def quarantine_of(self, key: Key) -> tuple[ObjectMeta, str] | None:
        """Return what is known of a key's object, and which object in quarantine it waits for; None when it waits for none."""
        held = self._quarantine.of(key)
        if held is None:
            return None
        root = self._cache.get(self._root, key.namespace, key.name)
        return (root.metadata if root is not None else held.metadata), held.why

    def look(self, key: Key) -> AbstractContextManager[None]:
        """Let a look run under the trace of the newest change that woke its key."""
        return self._wakers.look(key)

    def rested(self, key: Key) -> None:
        """Forget a key that nobody asks about any more, if its object is gone."""
        if self._cache.get(self._root, key.namespace, key.name) is None:
            self._places.pop(key, None)
            self._wakers.forget(key)

    def tidy(self) -> None:
        """Drop what a look read that belongs to somebody else: nobody tells us when that changes."""
        strangers = {
            caches.key_of(each): each
            for each in self._cache.homeless()
            if not any(self._places.get(key) in self._followed for key in self._keys_of(each))
        }
        self._strangers = {key: self._strangers.get(key, 0) + 1 for key in strangers}
        self._cache.forget(strangers[key] for key, met in self._strangers.items() if met >= STRANGER_MET)

    # --- what a partition's feed tells -------------------------------------------------------------------------------

    def taken(self, partition: "_Partition", kind: str, body: bytes, trace: str) -> caches.Key | None:
        """Put an object into the cache and wake the keys that it concerns; return where it is kept."""
        view = self._kinds.get(kind)
        if view is None:
            return None
        try:
            obj = msgspec.json.decode(body, type=view)
            list(self._keys_of(obj))
        except Exception as problem:  # noqa: BLE001  (whatever one object does to a decoder, the others go on)
            metrics.UNDECODABLE.labels(self._name, kind).inc()
            return self.quarantined(partition, kind, None, body, f"it does not decode: {problem!r}")
        if (misfit := go_shape.misfit(obj)) is not None:
            metrics.UNDECODABLE.labels(self._name, kind).inc()
            return self.quarantined(
                partition, kind, None, body, f"{misfit}; the CRDs of this version admit no such value"
            )
        key = caches.key_of(obj)
        released = self._quarantine.pop((kind, key[1], key[2]))
        is_new = self._cache.get(view, key[1], key[2]) is None
        if self._cache.put(obj, partition=partition.number, is_reload=not partition.is_synced):
            self._wake(partition, obj, trace, is_new=is_new)
        elif view is self._root and self._cache.home(*key) == partition.number:
            self._places[Key(key[1], key[2])] = partition.number
        self._wake_all(partition, released)
        return key

    def quarantined(
        self, partition: "_Partition", kind: str, place: tuple[str, str] | None, body: bytes, why: str
    ) -> caches.Key | None:
        """Let the keys wait that an object concerns whose state is not known; what was known of it stays. Return where it is kept."""
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
            self._places.setdefault(key, partition.number)
        self._wake_all(partition, keys)
        return view, meta.namespace, meta.name

    def _keys_of_metadata(self, view: type[Object], about: _Metadata) -> frozenset[Key]:
        meta = about.metadata
        if view is self._root:
            return frozenset({Key(meta.namespace, meta.name)})
        known = self._cache.get(view, meta.namespace, meta.name)
        return frozenset(self._keys_of(known if known is not None else about))

    def _wake_all(self, partition: "_Partition", keys: Iterable[Key]) -> None:
        for key in keys:
            if partition.is_synced:
                self._tell(key, False)  # noqa: FBT003  (the port of `Intake`)

    def gone(self, partition: "_Partition", kind: str, place: tuple[str, str], version: int, trace: str) -> None:
        """Take an object out of the cache and wake the keys that it concerned."""
        view = self._kinds.get(kind)
        if view is None:
            return
        self._wake_all(partition, self._quarantine.pop((kind, *place), partition=partition.number))
        known = self._cache.get(view, *place)
        if self._cache.remove(view, *place, version=version, partition=partition.number) and known is not None:
            self._wake(partition, known, trace)

    def left(self, partition: "_Partition", kind: str, place: tuple[str, str], to: int | None) -> None:
        """Take note that an object stands elsewhere now (None: where we do not read); what is ours still is known until that one tells."""
        view = self._kinds.get(kind)
        if view is None:
            return
        self._wake_all(partition, self._quarantine.pop((kind, *place), partition=partition.number))
        gone = self._cache.move(view, *place, origin=partition.number, to=to if to in self._followed else None)
        if gone is not None:
            self._wake(partition, gone, "")
        elif to is not None and view is self._root and self._cache.home(view, *place) == to:
            self._places[Key(*place)] = to

    def completed(self, partition: "_Partition", loaded: Set[caches.Key], version: int) -> None:
        """Drop what a load did not bring, and have every key of the partition looked at once."""
        known = self._cache.residents(partition.number)
        known += [each for each in self._cache.homeless() if self._is_among(each, {partition.number})]
        for gone in self._cache.keep_only(loaded, known, listed_at=version):
            self._wake(partition, gone, "")
        for each in self._cache.residents(partition.number):
            self._wake(partition, each, "")
        self._measure()
        if not self.loading and not self._was_synced:
            self._was_synced = True
            log.info("state is synced", objects=len(self._cache), partitions=len(self._followed), version=version)

    def rewound(self, partition: "_Partition") -> None:
        """Forget what a partition showed, and what answers brought: versions began again at a lower one."""
        known = self._cache.residents(partition.number)
        known += [each for each in self._cache.homeless() if self._is_among(each, {partition.number})]
        self._cache.rewind(known)

    def began(self, partition: "_Partition", why: str) -> None:
        """Take note that a partition is told anew."""
        self._quarantine.release({partition.number})
        if self._was_synced or len(self._followed) == 1:
            log.info("state is loading", why=why, partitions=self.loading)
        self._was_synced = False
        self._measure()

    def _wake(self, partition: "_Partition", obj: Object, trace: str, *, is_new: bool = False) -> None:
        own = Key(obj.metadata.namespace, obj.metadata.name)
        is_root = isinstance(obj, self._root)
        for key in self._keys_of(obj):
            if is_root and key == own:
                self._places[key] = partition.number
            else:
                self._places.setdefault(key, partition.number)
            self._wakers.woken(key, trace, waits=partition.is_synced)
            if partition.is_synced:
                self._tell(key, is_new and key == own)

    def _is_among(self, obj: Object, partitions: Set[int]) -> bool:
        """Tell whether an object that no partition shows yet belongs to some."""
        return any(self._places.get(key) in partitions for key in self._keys_of(obj))

    def _measure(self) -> None:
        ownership.PARTITIONS_HELD.labels(self._name).set(len(self._followed))
        ownership.PARTITIONS_LOADING.labels(self._name).set(self.loading)


class _Partition:
    """One followed partition; implements `common.bus.feed.Listener`."""

    def __init__(self, intake: Intake, number: int) -> None:
        self._intake = intake
        self.number = number
        self.is_held = True
        self.is_synced = False
        self.silent_since: float | None = None
        """When the last complete state ceased to count; None while it counts, and before the first."""
        self._loaded: set[caches.Key] | None = set()
        """What a running load has brought so far; None when no load runs."""

    def loading(self, why: str) -> None:
        if self.is_synced:
            self.silent_since = asyncio.get_running_loop().time()
        self.is_synced = False
        self._loaded = set()
        if self.is_held:
            self._intake.began(self, why)

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        if not self.is_held:
            return
        key = self._intake.taken(self, kind, body, trace)
        if key is not None and self._loaded is not None:
            self._loaded.add(key)

    def rewound(self) -> None:
        if self.is_held:
            self._intake.rewound(self)

    def quarantined(self, kind: str, namespace: str, name: str, *, body: bytes, why: str) -> None:
        if not self.is_held:
            return
        key = self._intake.quarantined(self, kind, (namespace, name), body, why)
        if key is not None and self._loaded is not None:
            self._loaded.add(key)

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        if self.is_held:
            self._intake.gone(self, kind, (namespace, name), version, trace)

    def moved(self, kind: str, namespace: str, name: str, *, to: int | None) -> None:
        if self.is_held:
            self._intake.left(self, kind, (namespace, name), to)

    def synced(self, version: int) -> None:
        if not self.is_held:
            return
        loaded, self._loaded, self.is_synced, self.silent_since = self._loaded or set[caches.Key](), None, True, None
        self._intake.completed(self, loaded, version)
