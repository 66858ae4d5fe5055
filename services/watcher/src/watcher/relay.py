"""One session's path of an object: from a watch, over its root and partition, to the message that the stream must hold.

A session begins with a stream that may hold anything. It loads what the stream holds, lists everything, publishes the
difference and tombstones for what is gone, and then a marker with a fresh epoch in every partition: only now may readers
decide. After that it follows. A stream that was lost or recreated, or a lost connection, ends the session; the next one
starts from the beginning, because Kubernetes is the truth and the stream is transport.
"""

import asyncio
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.meta import Envelope, ObjectMeta, version_number
from common.bus import forms, subjects
from common.bus.messages import Gone, Message, Quarantined, State, Synced
from common.bus.subjects import Place, Ref
from common.kube.resources import Resource
from common.kube.watch import Key
from common.observability import tracing
from watcher import addressing, metrics, published
from watcher.addressing import OwnerGraph
from watcher.outbox import Outbox

log = structlog.get_logger()

OUTBOX_LIMIT: Final = 256
"""With so many subjects waiting, a tree that moves waits too."""
AT_ONCE: Final = 32
"""Objects of one tree that are moved before the next tree has its turn; so a large tree, or one that moves all the time, delays no other."""
PAUSE_SECONDS: Final = 0.05
TRIES: Final = 200
"""So often the message of an object is asked for that moves: it may be on its way, or NATS away for seconds."""
_envelope: Final = msgspec.json.Decoder(Envelope)


class _Object(msgspec.Struct):
    """An object that the API server has."""

    uid: str = ""
    version: int = 0
    sources: set[int] = msgspec.field(default_factory=set[int])
    """The watches that show it; label selectors may show a kind in several parts."""
    lost_at: int = 0
    """The newest version at which a watch ceased to show it; watches are not equally far."""
    subject: str = ""
    """Its subject on the bus; empty while its root is not known, and where nothing reads it."""


class Relay:
    """One session's view of the API server, turned into puts."""

    def __init__(self, outbox: Outbox, end_session: Callable[[str], None]) -> None:
        self.outbox = outbox
        self.end_session = end_session
        self._owners = OwnerGraph()
        self._objects: defaultdict[Ref, _Object] = defaultdict(_Object)
        self._uncertain: dict[Ref, State | Quarantined] = {}
        """Objects with a root that may still change, or that nothing reads below their root, with what to publish when it changes."""
        self._moving: dict[Ref, dict[Ref, None]] = {}
        """Trees that change their place, each with its objects that have not moved yet."""
        self._move_asked = asyncio.Event()
        self._held_back: dict[Ref, State | Quarantined] = {}
        """Objects that change their place together with all below them, with what to publish once that has moved."""
        self._is_listing = True
        self._versions: dict[int, int] = {}
        """The version of each watch's last list."""
        self._selections: dict[int, tuple[str, str | None]] = {}
        """The kind and the namespace (None: all) that each watch shows a part of."""
        self._reached: dict[int, float] = {}
        """The version up to which each watch has reported everything."""
        self._missing: dict[Ref, int] = {}
        """Objects that no watch shows any more, with the version of the list that missed them last."""

    def follow(self, source: int, kind: str, namespace: str | None) -> None:
        """Expect a watch of a kind, in one namespace or (None) in all."""
        self._selections[source] = (kind, namespace)

    def take(self, source: int, resource: Resource, raw: bytes, why: str = "") -> None:
        """Take the state of an object; `why` when only its metadata can be read."""
        received = tracing.now()
        kind = resource.kind
        try:
            meta = _envelope.decode(raw).metadata
        except Exception as problem:  # noqa: BLE001  (one object without a name must not concern the others)
            metrics.QUARANTINED.labels(kind).inc()
            log.warning(
                "an object is skipped: its metadata does not decode", kind=kind, why=repr(problem)
            )
            return
        ref = Ref(kind, meta.namespace, meta.name)
        version = meta.version
        known = self._objects[ref]
        known.sources.add(source)
        self._missing.pop(ref, None)
        if known.uid == meta.uid and known.version >= version > 0:
            return
        known.uid, known.version = meta.uid, version
        below = self._owners.add(ref, addressing.parent_of(kind, meta))
        message = _message(resource, meta, raw, why)
        misplaced = [child for child in below if self._is_misplaced(child)]
        is_held_back = ref in self._held_back or bool(misplaced and known.subject != self._at(ref))
        if (
            is_held_back
        ):  # all below it moves first, so that no reconcile has it without what belongs to it
            if known.subject:
                self.outbox.put(
                    known.subject, _gone(ref, message.version, moved_to=self._place_of(ref))
                )
                known.subject = ""
            self._held_back[ref] = message
            self._moving.setdefault(ref, {}).update(dict.fromkeys(misplaced))
            self._move_asked.set()
        # Below it are objects with a root that was unknown, and something above them has changed.
        uncertain = ((child, self._uncertain[child]) for child in below if child in self._uncertain)
        wait = 0.0 if self._is_listing else published.seconds_to_wait(message, meta)
        for subject, put in self._placed(
            itertools.chain([] if is_held_back else [(ref, message)], uncertain)
        ):
            self.outbox.put(subject, put, received=received, wait=wait if put is message else 0.0)
        metrics.OBJECTS.set(len(self._objects))

    def gone(self, source: int, kind: str, raw: bytes) -> None:
        """Take a deletion.

        The tombstone has the version before the deletion's: an object that only changed its labels, and so left one
        watch for another, shows up there in the very same version and must win.
        """
        meta = _envelope.decode(raw).metadata
        ref = Ref(kind, meta.namespace, meta.name)
        if self._is_hidden_from(source, ref, meta.version - 1):
            self._lose(ref)

    def listed(self, source: int, kind: str, keys: set[Key], version: str) -> None:
        """Take the result of a list: of what this watch selects, these objects and no others exist.

        An object that is missing may have changed its labels, so that another watch of its kind is to show it, perhaps in a version
        below that of this list. It is declared deleted only once all watches of its kind have reported everything up to this list.
        """
        at = version_number(version)
        before = self._versions.get(source, 0)
        if 0 < at < before:
            self.end_session(
                f"{kind}: a list is of version {at}, an earlier one was of {before}: the API server's store was restored from a backup"
            )
            return
        self._versions[source] = at
        missing = [
            ref
            for ref, known in self._objects.items()
            if ref.kind == kind
            and source in known.sources
            and (ref.namespace, ref.name) not in keys
        ]
        for ref in missing:
            lost_at = at or self._objects[ref].version
            if self._is_hidden_from(source, ref, lost_at):
                self._missing[ref] = lost_at
        self._reach(
            source, at or math.inf
        )  # of a kind that is not served there is nothing to report

    def reached(self, source: int, version: str) -> None:
        """Take a bookmark: a watch has reported everything up to a version."""
        self._reach(source, version_number(version))

    def _reach(self, source: int, version: float) -> None:
        """Declare deleted what no watch shows, as far as this watch was the last one to be waited for."""
        self._reached[source] = version
        for ref, at in list(self._missing.items()):
            if all(self._reached.get(each, 0) >= at for each in self._watches_of(ref)):
                self._lose(ref)

    def _watches_of(self, ref: Ref) -> Iterator[int]:
        """Yield the watches that may show an object."""
        for source, (kind, namespace) in self._selections.items():
            if kind == ref.kind and namespace in {None, ref.namespace}:
                yield source

    def everything_is_listed(self) -> None:
        """Publish what waited for a parent, and tombstones for what the stream holds and the API server does not."""
        self._is_listing = False
        for subject, put in self._placed(list(self._uncertain.items())):
            self.outbox.put(subject, put)
        # An object that is held back is at its place in a moment, and must not be declared deleted.
        wanted = {ref: known.subject or self._at(ref) for ref, known in self._objects.items()}
        subjects_wanted = set(wanted.values())
        for subject, kind in self.outbox.stored().items():
            where = subjects.parse_state(subject)
            if where is None or subject in subjects_wanted or kind not in forms.FORMS:
                continue  # a kind of another build is left to that build's watcher
            ref = Ref(kind, where.namespace, where.name)
            target = subjects.parse_state(wanted.get(ref, ""))
            moved_to = target.place if target is not None else None
            # A reader may have written the object since another kind was listed, so the lists of this kind count.
            lists = [at for each in self._watches_of(ref) if (at := self._versions.get(each))]
            version = min(lists, default=self.version)
            self.outbox.put(subject, _gone(ref, str(version), moved_to=moved_to))
            if target is None and (newest := max(lists, default=0)) > version:
                self._objects[ref] = _Object(subject=subject, lost_at=newest)
                self._missing[ref] = newest

    @property
    def version(self) -> int:
        """Return the version that every list has reached; a kind that is not served does not count."""
        return min((version for version in self._versions.values() if version), default=0)

    def mark(self, marker: Synced) -> None:
        """Publish a marker in every partition: it is complete up to a list's version."""
        for partition in range(subjects.PARTITIONS):
            self.outbox.put(subjects.synced(partition), marker)

    def __len__(self) -> int:
        return len(self._objects)

    def _placed(
        self, objects: Iterable[tuple[Ref, State | Quarantined]]
    ) -> Iterator[tuple[str, Message]]:
        """Place objects in the trees of their roots, but where a root will be known in a moment; yield what subjects hold then."""
        for ref, state in objects:
            address, known = self._owners.address(ref), self._objects[ref]
            place = subjects.place_of(address.root)
            subject = _subject(ref, place)
            if address.is_certain and subject:
                self._uncertain.pop(ref, None)
            else:
                self._uncertain[ref] = state
                if self._is_listing and not address.is_certain:
                    continue
            old, known.subject = known.subject, subject
            if subject:
                yield subject, state
            if old and old != subject:
                yield old, _gone(ref, state.version, moved_to=place)

    def _is_misplaced(self, ref: Ref) -> bool:
        """Return whether a published object is at another place than its root's tree; an unpublished one needs no move."""
        known = self._objects.get(ref)
        return (
            known is not None
            and known.subject not in {"", self._at(ref)}
            and ref not in self._uncertain
        )

    def _at(self, ref: Ref) -> str:
        """Return the subject that an object belongs to; empty where nothing reads it."""
        return _subject(ref, self._place_of(ref))

    def _place_of(self, ref: Ref) -> Place:
        return subjects.place_of(self._owners.address(ref).root)

    async def move(self) -> None:
        """Move what is apart, some objects at a time and tree by tree in turn, until cancelled."""
        while True:
            while not self._moving:
                self._move_asked.clear()
                await self._move_asked.wait()
            tree = next(iter(self._moving))
            waiting = self._moving.pop(tree)
            some = list(itertools.islice(waiting, AT_ONCE))
            for ref in some:
                del waiting[ref]
            if waiting:
                self._moving[tree] = waiting
            async with asyncio.TaskGroup() as group:
                for ref in some:
                    group.create_task(self._move(ref))
            while len(self.outbox) > OUTBOX_LIMIT:  # noqa: ASYNC110  (what changes meanwhile does not wait behind them)
                await asyncio.sleep(PAUSE_SECONDS)
            message = self._held_back.get(tree)
            if tree not in self._moving and message is not None:
                del self._held_back[tree]
                for subject, put in self._placed([(tree, message)]):
                    self.outbox.put(subject, put)

    async def _move(self, ref: Ref) -> None:
        """Publish an object where it belongs, with the message that the stream holds of it."""
        for _ in range(TRIES):
            known = self._objects.get(ref)
            if known is None or not self._is_misplaced(ref):
                return
            try:
                message = await self.outbox.newest(known.subject)
            except errors.Retryable:
                message = None
            if (
                isinstance(message, State | Quarantined)
                and version_number(message.version) == known.version
            ):
                if self._objects.get(ref) is known and self._is_misplaced(ref):
                    for subject, put in self._placed([(ref, message)]):
                        self.outbox.put(subject, put)
                return
            await asyncio.sleep(PAUSE_SECONDS)
        self.end_session(
            f"{ref.kind} {ref.namespace}/{ref.name} belongs to another root, and the stream does not hold it"
        )

    def _is_hidden_from(self, source: int, ref: Ref, version: int) -> bool:
        """Record that a watch does not show an object any more; return whether no other watch does."""
        if (known := self._objects.get(ref)) is None:
            return False
        known.lost_at = max(known.lost_at, version)
        known.sources.discard(source)
        return not known.sources

    def _lose(self, ref: Ref) -> None:
        """Publish that an object is gone."""
        known = self._objects.pop(ref)
        self._missing.pop(ref, None)
        self._uncertain.pop(ref, None)
        self._held_back.pop(ref, None)
        self._owners.remove(ref)
        if known.subject:
            self.outbox.put(known.subject, _gone(ref, str(known.lost_at)))
        metrics.OBJECTS.set(len(self._objects))


def _subject(ref: Ref, place: Place) -> str:
    return (
        subjects.state(place, ref.kind, ref.namespace, ref.name)
        if published.is_read(ref.kind, place)
        else ""
    )


def _gone(ref: Ref, version: str, *, moved_to: Place | None = None) -> Gone:
    return Gone(
        kind=ref.kind, namespace=ref.namespace, name=ref.name, version=version, moved_to=moved_to
    )


def _message(resource: Resource, meta: ObjectMeta, raw: bytes, why: str) -> State | Quarantined:
    """Return the message for an object; an error in it concerns that object alone."""
    kind = resource.kind
    if not why:
        try:
            body = published.trim(resource, raw)
        except Exception as problem:  # noqa: BLE001  (see above)
            why = f"it cannot be read: {problem!r}"
        else:
            return State(
                kind=kind,
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                version=meta.resource_version,
                form=forms.written(kind),
                body=body,
            )
    metrics.QUARANTINED.labels(kind).inc()
    log.warning(
        "an object is in quarantine", object=f"{kind} {meta.namespace}/{meta.name}", why=why
    )
    return published.quarantined(kind, meta, why)


class Source:
    """The sink of one watch; implements `common.kube.watch.Sink`."""

    def __init__(
        self, relay: Relay, number: int, resource: Resource, namespace: str | None = None
    ) -> None:
        """Pass on to a relay what the watch of that number reports."""
        relay.follow(number, resource.kind, namespace)
        self.reached = partial(relay.reached, number)
        self.present = partial(relay.take, number, resource)
        self.gone = partial(relay.gone, number, resource.kind)
        self.listed = partial(relay.listed, number, resource.kind)
