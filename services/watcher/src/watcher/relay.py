"""Turn what the watches report into messages on the subject of each object's tree.

A tree is a root, such as a RayService, with all objects that belong to it. At the start of a
session the stream may hold anything. The session loads the content of the stream, lists all
objects, publishes the differences and tombstones for deleted objects, and then publishes a sync
marker with a new epoch in every partition. Only then may readers make decisions. After that the
session publishes each change. A lost connection, or a stream that was lost or recreated, ends the
session. The next session starts from the beginning, because Kubernetes is the source of truth and
the stream is only transport.

If an object gets a different root, its message moves to the subject of the new tree: the session
publishes the message there, and a tombstone on the old subject.
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
from common.api.core import Pod
from common.api.meta import Envelope, ObjectMeta, version_number
from common.bus import forms, subjects
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.bus.subjects import ObjectRef, TreeLocation
from common.kube.pod_protobuf import UnreadablePod, read_pod
from common.kube.resources import POD, Resource
from common.kube.watch import NamespacedName
from common.observability import tracing
from watcher import addressing, metrics, publish_filter
from watcher.addressing import OwnerGraph
from watcher.outbox import Outbox
from watcher.publish_filter import View

log = structlog.get_logger()

OUTBOX_LIMIT: Final = 256
"""If more subjects than this wait to be published, no further objects move to a different tree."""
MAX_MOVES: Final = 32
"""Maximum number of objects that move to one tree before it is the turn of the next tree.

The limit keeps a large tree, or a tree that changes all the time, from delaying other trees.
"""
PAUSE_SECONDS: Final = 0.05
TRIES: Final = 200
"""Attempts to read an object's message from the stream before its move to another tree fails.

The message may be in flight, or NATS may be unreachable for some seconds.
"""
_envelope: Final = msgspec.json.Decoder(Envelope)


class _Object(msgspec.Struct):
    """An object that exists at the API server, as this session knows it."""

    uid: str = ""
    listed_version: int = 0
    sources: set[int] = msgspec.field(default_factory=set[int])
    """Numbers of the watches that show the object. Several watches may select parts of one kind."""
    lost_at: int = 0
    """Newest resource version at which a watch stopped showing the object.

    The maximum of all watches is kept, because watches do not progress equally.
    """
    subject: str = ""
    """Subject on which the object is published.

    Empty while the root is unknown, and if no service reads the object.
    """


class Relay:
    """Everything that one session knows of the API server; passes each change to the outbox.

    Each watch has a number, the parameter `source` of the methods.
    """

    def __init__(self, outbox: Outbox, end_session: Callable[[str], None]) -> None:
        self.outbox = outbox
        self.end_session = end_session
        self._owners = OwnerGraph()
        self._objects: defaultdict[ObjectRef, _Object] = defaultdict(_Object)
        self._uncertain: dict[ObjectRef, ObjectState | Quarantined] = {}
        """Objects whose root may still change, or that no service reads.

        Each has the message that is published once its root is known.
        """
        self._moving: dict[ObjectRef, dict[ObjectRef, None]] = {}
        """Objects that got a different root, each with its descendants that have not moved yet."""
        self._move_asked = asyncio.Event()
        self._held_back: dict[ObjectRef, ObjectState | Quarantined] = {}
        """Objects that got a different root, each with its newest message.

        The message is published after the descendants of the object have moved.
        """
        self._is_listing = True
        self._versions: dict[int, int] = {}
        """Resource version of the last list of each watch."""
        self._selections: dict[int, tuple[str, str | None]] = {}
        """Kind and namespace (None: all namespaces) of each watch."""
        self._reached: dict[int, float] = {}
        """Resource version up to which each watch has reported all changes."""
        self._missing: dict[ObjectRef, int] = {}
        """Objects that no watch shows any more, with the version of the first list without them."""

    def follow(self, source: int, kind: str, namespace: str | None) -> None:
        """Register watch `source` of a kind in one namespace; None stands for all namespaces."""
        self._selections[source] = (kind, namespace)

    def take(self, source: int, resource: Resource, state: bytes | View, reason: str = "") -> None:
        """Process an object that the watch `source` reported: its JSON, or its view.

        `reason` is the cause if only the metadata of the object can be read, and empty otherwise.
        """
        received = tracing.now()
        kind = resource.kind
        try:
            view = _find_view(resource, state, reason)
            meta = _read_meta(state if view is None else view)
        except Exception as problem:  # noqa: BLE001  (only this object is affected)
            metrics.QUARANTINED.labels(kind).inc()
            log.warning("object skipped: cannot decode its metadata", kind=kind, why=repr(problem))
            return
        ref = ObjectRef(kind, meta.namespace, meta.name)
        version = meta.version
        obj = self._objects[ref]
        obj.sources.add(source)
        self._missing.pop(ref, None)
        if obj.uid == meta.uid and obj.listed_version >= version > 0:
            return
        obj.uid, obj.listed_version = meta.uid, version
        below = self._owners.add(ref, addressing.find_parent(kind, meta))
        message = _build_message(resource, meta, state if view is None else view, reason)
        misplaced = [child for child in below if self._is_misplaced(child)]
        is_held_back = ref in self._held_back or bool(
            misplaced and obj.subject != self._find_subject(ref)
        )
        if (
            is_held_back
        ):  # its descendants move first, so that no reconcile sees the object without them
            if obj.subject:
                self.outbox.put(
                    obj.subject, _build_tombstone(ref, message.version, moved_to=self._locate(ref))
                )
                obj.subject = ""
            self._held_back[ref] = message
            self._moving.setdefault(ref, {}).update(dict.fromkeys(misplaced))
            self._move_asked.set()
        # Descendants whose root was unknown may have got a root by this change.
        uncertain = ((child, self._uncertain[child]) for child in below if child in self._uncertain)
        wait = 0.0 if self._is_listing else publish_filter.seconds_to_wait(view)
        for subject, put in self._place_objects(
            itertools.chain([] if is_held_back else [(ref, message)], uncertain)
        ):
            self.outbox.put(subject, put, received=received, wait=wait if put is message else 0.0)
        metrics.OBJECTS.set(len(self._objects))

    def gone(self, source: int, kind: str, state: bytes | View) -> None:
        """Process the deletion of an object that the watch `source` reported.

        `state` is the last state of the object: its JSON, or its view. The tombstone has a version
        below that of the deletion. If only the labels of the object have changed, a different watch
        reports the object with the version of the deletion, and this report must take precedence.
        """
        meta = _read_meta(state)
        ref = ObjectRef(kind, meta.namespace, meta.name)
        if self._is_hidden_from(source, ref, meta.version - 1):
            self._drop(ref)

    def listed(self, source: int, kind: str, keys: set[NamespacedName], version: str) -> None:
        """Process a complete list of the watch `source`: its objects are exactly `keys`.

        An object that is missing from the list may still exist with other labels. Another watch of
        the same kind of object then shows it, perhaps with a version below the `version` of this
        list. So a missing object is declared deleted only when all watches of its kind have
        reported everything up to this list.
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
            for ref, obj in self._objects.items()
            if ref.kind == kind and source in obj.sources and (ref.namespace, ref.name) not in keys
        ]
        for ref in missing:
            lost_at = at or self._objects[ref].listed_version
            if self._is_hidden_from(source, ref, lost_at):
                self._missing[ref] = lost_at
        self._reach(source, at or math.inf)  # a kind that is not served has nothing to report

    def reached(self, source: int, version: str) -> None:
        """Process a bookmark: the watch `source` has reported every change up to this version."""
        self._reach(source, version_number(version))

    def _reach(self, source: int, version: float) -> None:
        """Record the version up to which a watch has reported, and declare missing objects deleted.

        A missing object is deleted once every watch that may show it has reported up to the version
        of the first list without the object.
        """
        self._reached[source] = version
        for ref, at in list(self._missing.items()):
            if all(self._reached.get(watch, 0) >= at for watch in self._watches_of(ref)):
                self._drop(ref)

    def _watches_of(self, ref: ObjectRef) -> Iterator[int]:
        for source, (kind, namespace) in self._selections.items():
            if kind == ref.kind and namespace in {None, ref.namespace}:
                yield source

    def everything_is_listed(self) -> None:
        """Publish objects whose root is unknown, and tombstones for objects that no longer exist.

        Called once in a session, when all lists are complete.
        """
        self._is_listing = False
        for subject, put in self._place_objects(list(self._uncertain.items())):
            self.outbox.put(subject, put)
        # An object that is held back is published in a moment, and must not be declared deleted.
        subject_by_ref = {
            ref: obj.subject or self._find_subject(ref) for ref, obj in self._objects.items()
        }
        subjects_wanted = set(subject_by_ref.values())
        for subject, kind in self.outbox.list_stored().items():
            where = subjects.parse_state(subject)
            if where is None or subject in subjects_wanted or kind not in forms.FORMS:
                continue  # a kind that only another build knows is left to that build's watcher
            ref = ObjectRef(kind, where.namespace, where.name)
            target = subjects.parse_state(subject_by_ref.get(ref, ""))
            moved_to = target.place if target is not None else None
            # A reader may have created the object after another kind was listed, so only lists of
            # this kind count.
            lists = [at for watch in self._watches_of(ref) if (at := self._versions.get(watch))]
            version = min(lists, default=self.version)
            self.outbox.put(subject, _build_tombstone(ref, str(version), moved_to=moved_to))
            if target is None and (newest := max(lists, default=0)) > version:
                self._objects[ref] = _Object(subject=subject, lost_at=newest)
                self._missing[ref] = newest

    @property
    def version(self) -> int:
        """The resource version that the lists of all watches have reached; 0 before the first list.

        Kinds that the API server does not serve do not count.
        """
        return min((version for version in self._versions.values() if version), default=0)

    def publish_marker(self, marker: Synced) -> None:
        """Put a sync marker for every partition into the outbox.

        Only the marker of the first partition announces that it will be renewed.
        """
        self.renew_marker(marker)
        unrenewed = msgspec.structs.replace(marker, renewed=0.0)
        for partition in range(1, subjects.PARTITIONS):
            self._put_marker(partition, unrenewed)

    def renew_marker(self, marker: Synced) -> None:
        """Put the sync marker of the first partition into the outbox, to renew it.

        Readers of every partition follow this marker, so no other marker needs a renewal (ADR 56).
        """
        self._put_marker(0, marker)

    def _put_marker(self, partition: int, marker: Synced) -> None:
        for tree in subjects.MARKED_TREES:
            self.outbox.put(subjects.build_marker_subject(partition, tree), marker)

    def __len__(self) -> int:
        return len(self._objects)

    def _place_objects(
        self, objects: Iterable[tuple[ObjectRef, ObjectState | Quarantined]]
    ) -> Iterator[tuple[str, Message]]:
        """Yield the subjects and messages that bring each object into the tree of its root.

        A tombstone replaces the object at its old subject. During the initial lists, an object
        whose root is unknown is skipped, because a later list may show its parent.
        """
        for ref, state in objects:
            address, obj = self._owners.address(ref), self._objects[ref]
            location = subjects.locate_tree(address.root)
            subject = _build_subject(ref, location)
            if address.is_certain and subject:
                self._uncertain.pop(ref, None)
            else:
                self._uncertain[ref] = state
                if self._is_listing and not address.is_certain:
                    continue
            old, obj.subject = obj.subject, subject
            if subject:
                yield subject, state
            if old and old != subject:
                yield old, _build_tombstone(ref, state.version, moved_to=location)

    def _is_misplaced(self, ref: ObjectRef) -> bool:
        """Return whether an object was published outside the tree of its present root."""
        obj = self._objects.get(ref)
        return (
            obj is not None
            and obj.subject not in {"", self._find_subject(ref)}
            and ref not in self._uncertain
        )

    def _find_subject(self, ref: ObjectRef) -> str:
        """Return the subject in the tree of the object's root.

        Empty if no service reads the object there.
        """
        return _build_subject(ref, self._locate(ref))

    def _locate(self, ref: ObjectRef) -> TreeLocation:
        return subjects.locate_tree(self._owners.address(ref).root)

    async def move(self) -> None:
        """Move misplaced objects to their trees until cancelled; trees take turns."""
        while True:
            while not self._moving:
                self._move_asked.clear()
                await self._move_asked.wait()
            tree = next(iter(self._moving))
            waiting = self._moving.pop(tree)
            batch = list(itertools.islice(waiting, MAX_MOVES))
            for ref in batch:
                del waiting[ref]
            if waiting:
                self._moving[tree] = waiting
            async with asyncio.TaskGroup() as group:
                for ref in batch:
                    group.create_task(self._move(ref))
            while len(self.outbox) > OUTBOX_LIMIT:  # noqa: ASYNC110  (changes go first)
                await asyncio.sleep(PAUSE_SECONDS)
            message = self._held_back.get(tree)
            if tree not in self._moving and message is not None:
                del self._held_back[tree]
                for subject, put in self._place_objects([(tree, message)]):
                    self.outbox.put(subject, put)

    async def _move(self, ref: ObjectRef) -> None:
        """Publish a misplaced object in the tree of its root, using the message at its old subject.

        Ends the session if the stream does not hold that message after `TRIES` attempts.
        """
        for _ in range(TRIES):
            obj = self._objects.get(ref)
            if obj is None or not self._is_misplaced(ref):
                return
            try:
                message = await self.outbox.get_newest(obj.subject)
            except errors.Retryable:
                message = None
            if (
                isinstance(message, ObjectState | Quarantined)
                and version_number(message.version) == obj.listed_version
            ):
                if self._objects.get(ref) is obj and self._is_misplaced(ref):
                    for subject, put in self._place_objects([(ref, message)]):
                        self.outbox.put(subject, put)
                return
            await asyncio.sleep(PAUSE_SECONDS)
        self.end_session(
            f"{ref.kind} {ref.namespace}/{ref.name} belongs to another root, and the stream does "
            "not hold it"
        )

    def _is_hidden_from(self, source: int, ref: ObjectRef, version: int) -> bool:
        """Record that a watch no longer shows an object; return whether no watch shows it any more.

        Returns False for an unknown object.
        """
        if (obj := self._objects.get(ref)) is None:
            return False
        obj.lost_at = max(obj.lost_at, version)
        obj.sources.discard(source)
        return not obj.sources

    def _drop(self, ref: ObjectRef) -> None:
        obj = self._objects.pop(ref)
        self._missing.pop(ref, None)
        self._uncertain.pop(ref, None)
        self._held_back.pop(ref, None)
        self._owners.remove(ref)
        if obj.subject:
            self.outbox.put(obj.subject, _build_tombstone(ref, str(obj.lost_at)))
        metrics.OBJECTS.set(len(self._objects))


def _build_subject(ref: ObjectRef, location: TreeLocation) -> str:
    return (
        subjects.build_state_subject(location, ref.kind, ref.namespace, ref.name)
        if publish_filter.is_read(ref.kind, location)
        else ""
    )


def _build_tombstone(
    ref: ObjectRef, version: str, *, moved_to: TreeLocation | None = None
) -> Tombstone:
    return Tombstone(
        kind=ref.kind, namespace=ref.namespace, name=ref.name, version=version, moved_to=moved_to
    )


def _find_view(resource: Resource, state: bytes | View, reason: str) -> View | None:
    """Return the view of an object; None without one, or if `reason` says it is unreadable."""
    if not isinstance(state, bytes):
        return state
    return None if reason else publish_filter.decode_view(resource, state)


def _read_meta(state: bytes | View) -> ObjectMeta:
    return _envelope.decode(state).metadata if isinstance(state, bytes) else state.metadata


def _build_message(
    resource: Resource, meta: ObjectMeta, state: bytes | View, reason: str
) -> ObjectState | Quarantined:
    """Return the message with an object's state; a quarantine message if it cannot be read."""
    kind = resource.kind
    if not reason:
        try:
            body = publish_filter.trim(resource, state)
        except Exception as problem:  # noqa: BLE001  (see above)
            reason = f"it cannot be read: {problem!r}"
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
    log.warning("object quarantined", object=f"{kind} {meta.namespace}/{meta.name}", why=reason)
    return publish_filter.make_quarantined(kind, meta, reason)


class RelaySource:
    """Passes everything that one watch reports to the relay.

    Implements `common.kube.watch.WatchSink`.
    """

    def __init__(
        self, relay: Relay, number: int, resource: Resource, namespace: str | None = None
    ) -> None:
        """Register watch `number` of a kind in one namespace; None stands for all namespaces."""
        relay.follow(number, resource.kind, namespace)
        self.reached = partial(relay.reached, number)
        self.present = partial(relay.take, number, resource)
        self.gone = partial(relay.gone, number, resource.kind)
        self.listed = partial(relay.listed, number, resource.kind)
        self.protobuf = ProtobufPods(self) if resource == POD else None
        """Sink for a kind that is read as protobuf; None for the other kinds."""


class ProtobufPods:
    """Receives a watch's pods as protobuf for `RelaySource`; implements `ProtobufSink`."""

    def __init__(self, source: RelaySource) -> None:
        self._source = source

    def present(self, content: bytes) -> None:
        """Take the newest state of a pod."""
        try:
            self._source.present(read_pod(content))
        except UnreadablePod as problem:
            metadata_only = Pod(metadata=problem.metadata)
            self._source.present(metadata_only, f"it cannot be read: {problem!r}")

    def gone(self, content: bytes) -> None:
        """Take the last state of a deleted pod."""
        try:
            pod = read_pod(content)
        except UnreadablePod as problem:
            pod = Pod(metadata=problem.metadata)
        self._source.gone(pod)
