"""The story: what the API server tells → who it belongs to → what the stream must hold.

A session begins with a stream that may hold anything. It loads what the stream holds, lists everything, publishes the
difference and tombstones for what is gone, and then a marker with a fresh epoch in every partition: only now may readers
decide. After that it follows. A stream that was lost or recreated, or a lost connection, ends the session; the next one
starts from the beginning, because Kubernetes is the truth and the stream is transport.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from common.api.meta import ObjectMeta
from common.bus import messages, sharding, subjects
from common.bus.feed import Synced
from common.bus.messages import Gone, State
from common.kube.resources import Resource
from common.kube.watch import Key
from common.observability import tracing
from watcher import addressing, metrics, trimming
from watcher.addressing import Forest, Ref
from watcher.outbox import Outbox


class _Envelope(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_envelope: Final = msgspec.json.Decoder(_Envelope)


class _Seen(msgspec.Struct):
    """An object that the API server told us about."""

    uid: str
    version: int
    sources: set[int]
    """The watches that show it; label selectors may show a kind in several parts."""
    subject: str = ""
    """Where it stands on the bus; empty while its root is not known."""


class Relay:
    """One session's view of the API server, turned into puts."""

    def __init__(self, outbox: Outbox, give_up: Callable[[str], None]) -> None:
        self._outbox = outbox
        self._give_up = give_up
        self._forest = Forest()
        self._seen: dict[Ref, _Seen] = {}
        self._uncertain: dict[Ref, State] = {}
        """Objects whose root may still turn out to be another one, with what to publish then."""
        self._is_listing = True
        self._versions: dict[int, int] = {}
        """The version of each watch's last list."""

    def sink(self, source: int, resource: Resource) -> "Source":
        """Return who takes what one watch tells."""
        return Source(self, source, resource)

    # --- what watches tell -------------------------------------------------------------------------------------------

    def present(self, source: int, resource: Resource, raw: bytes) -> None:
        """Take the state of an object."""
        heard = tracing.now()
        kind = resource.kind
        meta = _envelope.decode(raw).metadata
        ref = Ref(kind, meta.namespace, meta.name)
        version = messages.number(meta.resource_version)
        known = self._seen.get(ref)
        if known is not None and known.uid == meta.uid and known.version >= version > 0:
            known.sources.add(source)
            return
        if known is None:
            known = self._seen[ref] = _Seen(uid=meta.uid, version=version, sources={source})
        known.uid, known.version = meta.uid, version
        known.sources.add(source)
        moving = self._forest.plant(ref, addressing.parent_of(kind, meta))
        state = State(
            kind=kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            version=meta.resource_version,
            form=trimming.form_of(kind),
            body=trimming.trim(resource, raw),
        )
        self._place(ref, known, state, heard=heard)
        for child in moving:
            self._move(child)
        metrics.OBJECTS.set(len(self._seen))

    def gone(self, source: int, kind: str, raw: bytes) -> None:
        """Take note of a deletion.

        The tombstone says "gone before the deletion's version": an object that only changed its labels, and so left one
        watch for another, shows up there in the very same version and must win.
        """
        meta = _envelope.decode(raw).metadata
        self._lose(source, Ref(kind, meta.namespace, meta.name), messages.number(meta.resource_version) - 1)

    def listed(self, source: int, kind: str, keys: set[Key], version: str) -> None:
        """Take note that a list held these objects and no others."""
        at = messages.number(version)
        self._versions[source] = at
        missing = [
            ref
            for ref, known in self._seen.items()
            if ref.kind == kind and source in known.sources and (ref.namespace, ref.name) not in keys
        ]
        for ref in missing:
            self._lose(source, ref, at or self._seen[ref].version)

    # --- what the session asks ---------------------------------------------------------------------------------------

    def everything_is_listed(self) -> None:
        """Publish what waited for a parent, and tombstones for what the stream holds and the API server does not."""
        self._is_listing = False
        for ref, state in list(self._uncertain.items()):
            self._place(ref, self._seen[ref], state)
        wanted = {known.subject for known in self._seen.values()}
        for subject, kind in self._outbox.stored().items():
            where = subjects.parse_state(subject)
            if where is None or subject in wanted:
                continue
            living = self._seen.get(Ref(kind, where.namespace, where.name))
            target = subjects.parse_state(living.subject) if living is not None else None
            gone = Gone(
                kind=kind,
                namespace=where.namespace,
                name=where.name,
                version=str(self.version),
                moved_to=target.place if target is not None else None,
            )
            self._outbox.put(subject, gone)

    @property
    def version(self) -> int:
        """Return the version that every list has reached; what a kind that is not served says does not count."""
        return min((version for version in self._versions.values() if version), default=0)

    def mark(self, epoch: str, version: int) -> None:
        """Say in every partition that all is there that a list at a version held."""
        for partition in range(sharding.PARTITIONS):
            self._outbox.put(subjects.synced(partition), Synced(epoch=epoch, version=version))

    def __len__(self) -> int:
        """Count the objects that the API server shows."""
        return len(self._seen)

    # --- where things stand ------------------------------------------------------------------------------------------

    def _place(self, ref: Ref, known: _Seen, state: State, *, heard: int = 0) -> None:
        """Publish an object where its root's tree stands, unless its root will be known in a moment."""
        address = self._forest.address(ref)
        if address.is_certain:
            self._uncertain.pop(ref, None)
        else:
            self._uncertain[ref] = state
            if self._is_listing:
                return
        place = sharding.place_of(address.root)
        subject = subjects.state(place, ref.kind, ref.namespace, ref.name)
        old, known.subject = known.subject, subject
        self._outbox.put(subject, state, heard=heard)
        if old and old != subject:
            self._outbox.put(
                old,
                Gone(kind=ref.kind, namespace=ref.namespace, name=ref.name, version=state.version, moved_to=place),
            )

    def _move(self, ref: Ref) -> None:
        """Look again where an object belongs, after something above it has changed."""
        known = self._seen.get(ref)
        if known is None:
            return
        state = self._uncertain.get(ref)
        if state is not None:
            self._place(ref, known, state)
            return
        place = sharding.place_of(self._forest.address(ref).root)
        if known.subject != subjects.state(place, ref.kind, ref.namespace, ref.name):
            self._give_up(f"{ref.kind} {ref.namespace}/{ref.name} moves to another root, and so must be listed again")

    def _lose(self, source: int, ref: Ref, version: int) -> None:
        known = self._seen.get(ref)
        if known is None:
            return
        known.sources.discard(source)
        if known.sources:
            return
        del self._seen[ref]
        self._uncertain.pop(ref, None)
        self._forest.fell(ref)
        if known.subject:
            gone = Gone(kind=ref.kind, namespace=ref.namespace, name=ref.name, version=str(version))
            self._outbox.put(known.subject, gone)
        metrics.OBJECTS.set(len(self._seen))


class Source:
    """One watch's ear; implements `common.kube.watch.Sink`."""

    def __init__(self, relay: Relay, number: int, resource: Resource) -> None:
        self._relay = relay
        self._number = number
        self._resource = resource

    def present(self, raw: bytes) -> None:
        """Take an object as it is now."""
        self._relay.present(self._number, self._resource, raw)

    def gone(self, raw: bytes) -> None:
        """Take the last state of an object that was deleted."""
        self._relay.gone(self._number, self._resource.kind, raw)

    def listed(self, keys: set[Key], version: str) -> None:
        """Take note that a list held these objects and no others."""
        self._relay.listed(self._number, self._resource.kind, keys, version)
