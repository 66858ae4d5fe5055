"""Processing of a watched object in one session: from the watch, through its root, to its subject.

At the start of a session the stream may hold anything. The session loads the content of the stream,
lists all objects, publishes the differences and tombstones for deleted objects, and then publishes
a sync marker with a new epoch in every partition. Only then may readers make decisions. After that
the session publishes each change. A lost connection, or a stream that was lost or recreated, ends
the session. The next session starts from the beginning, because Kubernetes is the source of truth
and the stream is only transport.
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
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.bus.subjects import ObjectRef, TreeLocation
from common.kube.resources import Resource
from common.kube.watch import Key
from common.observability import tracing
from watcher import addressing, metrics, published
from watcher.addressing import OwnerGraph
from watcher.outbox import Outbox

log = structlog.get_logger()

OUTBOX_LIMIT: Final = 256
"""Number of waiting subjects above which moves of trees pause."""
AT_ONCE: Final = 32
"""Objects of one tree that are moved before the next tree has its turn.

The limit keeps a large tree, or a tree that moves all the time, from delaying the others.
"""
PAUSE_SECONDS: Final = 0.05
TRIES: Final = 200
"""Attempts to read an object's message before the move gives up.

The message may be in flight, or NATS may be unreachable for some seconds.
"""
_envelope: Final = msgspec.json.Decoder(Envelope)


class _Object(msgspec.Struct):
    """An object that exists at the API server."""

    uid: str = ""
    version: int = 0
    sources: set[int] = msgspec.field(default_factory=set[int])
    """Watches that show the object. Several watches may select parts of one kind."""
    lost_at: int = 0
    """Newest version at which a watch stopped showing the object.

    Watches do not progress equally.
    """
    subject: str = ""
    """Subject on the bus; empty while the root is unknown, and for objects that nobody reads."""


class Relay:
    """One session's view of the API server; it turns changes into puts of the outbox."""

    def __init__(self, outbox: Outbox, end_session: Callable[[str], None]) -> None:
        self.outbox = outbox
        self.end_session = end_session
        self._owners = OwnerGraph()
        self._objects: defaultdict[ObjectRef, _Object] = defaultdict(_Object)
        self._uncertain: dict[ObjectRef, ObjectState | Quarantined] = {}
        """Objects whose root may still change, or that no service reads, with the message to
        publish.
        """
        self._moving: dict[ObjectRef, dict[ObjectRef, None]] = {}
        """Trees that move to another place, each with the objects that have not moved yet."""
        self._move_asked = asyncio.Event()
        self._held_back: dict[ObjectRef, ObjectState | Quarantined] = {}
        """Objects that move together with their descendants.

        Their message is published after the descendants have moved.
        """
        self._is_listing = True
        self._versions: dict[int, int] = {}
        """Version of the last list, by watch."""
        self._selections: dict[int, tuple[str, str | None]] = {}
        """Kind and namespace (None: all namespaces) of each watch."""
        self._reached: dict[int, float] = {}
        """Version up to which each watch has reported everything."""
        self._missing: dict[ObjectRef, int] = {}
        """Objects that no watch shows any more, with the version of the last list without them."""

    def follow(self, source: int, kind: str, namespace: str | None) -> None:
        """Register a watch of a kind in one namespace; None stands for all namespaces."""
        self._selections[source] = (kind, namespace)

    def take(self, source: int, resource: Resource, raw: bytes, why: str = "") -> None:
        """Process the state of an object from watch `source`.

        `why` is the reason why only the metadata of the object can be read; empty if all can be
        read.
        """
        received = tracing.now()
        kind = resource.kind
        try:
            meta = _envelope.decode(raw).metadata
        except Exception as problem:  # noqa: BLE001  (only this object is affected)
            metrics.QUARANTINED.labels(kind).inc()
            log.warning(
                "an object is skipped: its metadata does not decode", kind=kind, why=repr(problem)
            )
            return
        ref = ObjectRef(kind, meta.namespace, meta.name)
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
        ):  # its descendants move first, so that no reconcile sees the object without them
            if known.subject:
                self.outbox.put(
                    known.subject, _gone(ref, message.version, moved_to=self._place_of(ref))
                )
                known.subject = ""
            self._held_back[ref] = message
            self._moving.setdefault(ref, {}).update(dict.fromkeys(misplaced))
            self._move_asked.set()
        # Descendants whose root was unknown may have got a root by this change.
        uncertain = ((child, self._uncertain[child]) for child in below if child in self._uncertain)
        wait = 0.0 if self._is_listing else published.seconds_to_wait(message, meta)
        for subject, put in self._placed(
            itertools.chain([] if is_held_back else [(ref, message)], uncertain)
        ):
            self.outbox.put(subject, put, received=received, wait=wait if put is message else 0.0)
        metrics.OBJECTS.set(len(self._objects))

    def gone(self, source: int, kind: str, raw: bytes) -> None:
        """Process a deletion.

        The tombstone has the version before the deletion. An object that only changed its labels,
        and so moved from one watch to another, appears in the other watch with the same version as
        the deletion, and must take precedence.
        """
        meta = _envelope.decode(raw).metadata
        ref = ObjectRef(kind, meta.namespace, meta.name)
        if self._is_hidden_from(source, ref, meta.version - 1):
            self._lose(ref)

    def listed(self, source: int, kind: str, keys: set[Key], version: str) -> None:
        """Process a list: the objects in `keys` exist, and no others that the watch selects.

        A missing object may have changed its labels. Then another watch of its kind will show the
        object, perhaps with a version below that of this list. A missing object is declared deleted
        only after all watches of its kind have reported everything up to this list.
        """
        at = version_number(version)
        before = self._versions.get(source, 0)
        if 0 < at < before:
            self.end_session(
                f"{kind}: a list is of version {at}, an earlier one was of {before}: the API "
                "server's store was restored from a backup"
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
        self._reach(source, at or math.inf)  # a kind that is not served has nothing to report

    def reached(self, source: int, version: str) -> None:
        """Process a bookmark: the watch has reported everything up to this version."""
        self._reach(source, version_number(version))

    def _reach(self, source: int, version: float) -> None:
        """Record how far a watch has reported, and declare missing objects deleted.

        A missing object is deleted once every watch that may show it has reported beyond its loss.
        """
        self._reached[source] = version
        for ref, at in list(self._missing.items()):
            if all(self._reached.get(each, 0) >= at for each in self._watches_of(ref)):
                self._lose(ref)

    def _watches_of(self, ref: ObjectRef) -> Iterator[int]:
        for source, (kind, namespace) in self._selections.items():
            if kind == ref.kind and namespace in {None, ref.namespace}:
                yield source

    def everything_is_listed(self) -> None:
        """Publish objects that waited for a parent, and tombstones for deleted objects."""
        self._is_listing = False
        for subject, put in self._placed(list(self._uncertain.items())):
            self.outbox.put(subject, put)
        # An object that is held back is published in a moment, and must not be declared deleted.
        wanted = {ref: known.subject or self._at(ref) for ref, known in self._objects.items()}
        subjects_wanted = set(wanted.values())
        for subject, kind in self.outbox.stored().items():
            where = subjects.parse_state(subject)
            if where is None or subject in subjects_wanted or kind not in forms.FORMS:
                continue  # a kind that only another build knows is left to that build's watcher
            ref = ObjectRef(kind, where.namespace, where.name)
            target = subjects.parse_state(wanted.get(ref, ""))
            moved_to = target.place if target is not None else None
            # A reader may have created the object after another kind was listed, so only lists of
            # this kind count.
            lists = [at for each in self._watches_of(ref) if (at := self._versions.get(each))]
            version = min(lists, default=self.version)
            self.outbox.put(subject, _gone(ref, str(version), moved_to=moved_to))
            if target is None and (newest := max(lists, default=0)) > version:
                self._objects[ref] = _Object(subject=subject, lost_at=newest)
                self._missing[ref] = newest

    @property
    def version(self) -> int:
        """The version that every list has reached; kinds that are not served do not count."""
        return min((version for version in self._versions.values() if version), default=0)

    def mark(self, marker: Synced) -> None:
        """Publish a sync marker in every partition."""
        for partition in range(subjects.PARTITIONS):
            self.outbox.put(subjects.build_marker_subject(partition), marker)

    def __len__(self) -> int:
        return len(self._objects)

    def _placed(
        self, objects: Iterable[tuple[ObjectRef, ObjectState | Quarantined]]
    ) -> Iterator[tuple[str, Message]]:
        """Yield the puts that bring objects to the trees of their roots.

        During the initial lists an object waits if its root may become known soon.
        """
        for ref, state in objects:
            address, known = self._owners.address(ref), self._objects[ref]
            place = subjects.locate_tree(address.root)
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

    def _is_misplaced(self, ref: ObjectRef) -> bool:
        """Return whether a published object is not in the tree of its root."""
        known = self._objects.get(ref)
        return (
            known is not None
            and known.subject not in {"", self._at(ref)}
            and ref not in self._uncertain
        )

    def _at(self, ref: ObjectRef) -> str:
        """Return the subject on which an object belongs; empty if no service reads it there."""
        return _subject(ref, self._place_of(ref))

    def _place_of(self, ref: ObjectRef) -> TreeLocation:
        return subjects.locate_tree(self._owners.address(ref).root)

    async def move(self) -> None:
        """Move misplaced objects until cancelled, some objects of each tree in turn."""
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
            while len(self.outbox) > OUTBOX_LIMIT:  # noqa: ASYNC110  (changes go first)
                await asyncio.sleep(PAUSE_SECONDS)
            message = self._held_back.get(tree)
            if tree not in self._moving and message is not None:
                del self._held_back[tree]
                for subject, put in self._placed([(tree, message)]):
                    self.outbox.put(subject, put)

    async def _move(self, ref: ObjectRef) -> None:
        """Publish an object at its new place, with the message that the stream holds."""
        for _ in range(TRIES):
            known = self._objects.get(ref)
            if known is None or not self._is_misplaced(ref):
                return
            try:
                message = await self.outbox.newest(known.subject)
            except errors.Retryable:
                message = None
            if (
                isinstance(message, ObjectState | Quarantined)
                and version_number(message.version) == known.version
            ):
                if self._objects.get(ref) is known and self._is_misplaced(ref):
                    for subject, put in self._placed([(ref, message)]):
                        self.outbox.put(subject, put)
                return
            await asyncio.sleep(PAUSE_SECONDS)
        self.end_session(
            f"{ref.kind} {ref.namespace}/{ref.name} belongs to another root, and the stream does "
            "not hold it"
        )

    def _is_hidden_from(self, source: int, ref: ObjectRef, version: int) -> bool:
        """Record that a watch no longer shows an object; return whether no other watch does."""
        if (known := self._objects.get(ref)) is None:
            return False
        known.lost_at = max(known.lost_at, version)
        known.sources.discard(source)
        return not known.sources

    def _lose(self, ref: ObjectRef) -> None:
        known = self._objects.pop(ref)
        self._missing.pop(ref, None)
        self._uncertain.pop(ref, None)
        self._held_back.pop(ref, None)
        self._owners.remove(ref)
        if known.subject:
            self.outbox.put(known.subject, _gone(ref, str(known.lost_at)))
        metrics.OBJECTS.set(len(self._objects))


def _subject(ref: ObjectRef, place: TreeLocation) -> str:
    return (
        subjects.build_state_subject(place, ref.kind, ref.namespace, ref.name)
        if published.is_read(ref.kind, place)
        else ""
    )


def _gone(ref: ObjectRef, version: str, *, moved_to: TreeLocation | None = None) -> Tombstone:
    return Tombstone(
        kind=ref.kind, namespace=ref.namespace, name=ref.name, version=version, moved_to=moved_to
    )


def _message(
    resource: Resource, meta: ObjectMeta, raw: bytes, why: str
) -> ObjectState | Quarantined:
    """Return the message of an object; an error in the object affects only that object."""
    kind = resource.kind
    if not why:
        try:
            body = published.trim(resource, raw)
        except Exception as problem:  # noqa: BLE001  (see above)
            why = f"it cannot be read: {problem!r}"
        else:
            return ObjectState(
                kind=kind,
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                version=meta.resource_version,
                form=forms.get_form(kind),
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
        """Pass the reports of watch `number` on to the relay."""
        relay.follow(number, resource.kind, namespace)
        self.reached = partial(relay.reached, number)
        self.present = partial(relay.take, number, resource)
        self.gone = partial(relay.gone, number, resource.kind)
        self.listed = partial(relay.listed, number, resource.kind)
