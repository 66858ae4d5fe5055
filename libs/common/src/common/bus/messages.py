"""The messages on the state stream, and their form on the wire.

There are four kinds of message: the last state of an object; a tombstone; a quarantine notice for
an object whose state cannot be published; and a sync marker, with which the watcher declares a
partition complete. `tests/golden/messages` has a golden file for each. Readers ignore headers that
they do not know.

    header                content
    Raybus-Kind           Kubernetes kind, such as `RayCluster`; `Synced` for a sync marker;
                          `Quarantined`
    Raybus-Version        resourceVersion of the state, or of the deletion
    Raybus-Uid            uid of the object
    Raybus-Form           form of the message (`common.bus.forms`), 1.0 when absent; an object is
                          published again if its form changes, even at the same version
    Raybus-Encoding       `zlib` when the payload is compressed
    Raybus-Gone           `deleted`, or `moved <partition> <tree>` when the object is now under
                          another subject
    Raybus-Quarantined    kind of an object in quarantine; readers that do not know this header
                          ignore the kind `Quarantined`
    Nats-TTL              how long a tombstone is kept
    traceparent           W3C trace context; one trace for each change of an object
"""

import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import ClassVar, Final, TypeVar

import msgspec

from common.bus import forms, subjects
from common.bus.subjects import TreeLocation

T = TypeVar("T")

KIND: Final = "Raybus-Kind"
VERSION: Final = "Raybus-Version"
UID: Final = "Raybus-Uid"
FORM: Final = "Raybus-Form"
ENCODING: Final = "Raybus-Encoding"
GONE: Final = "Raybus-Gone"
QUARANTINED_KIND: Final = "Raybus-Quarantined"
TTL: Final = "Nats-TTL"
TRACE: Final = "traceparent"

SYNCED: Final = "Synced"
QUARANTINED: Final = "Quarantined"
COMPRESS_ABOVE: Final = 64 * 1024
"""Payloads of more bytes are compressed. Compressing smaller ones costs more than it saves."""
MAX_PAYLOAD_SIZE: Final = 16 * 1024 * 1024
"""Maximum bytes after decompression: ten times etcd's limit for an object.

It keeps a hostile payload from filling memory.
"""
TOMBSTONE_TTL: Final = "1h"
"""Lifetime of a tombstone.

It exceeds the time for which a reader may be disconnected without reloading the state, and the
watcher's interval between two lists.
"""


class ObjectVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a message is about, and the object's resourceVersion."""

    kind: str
    namespace: str
    name: str
    version: str


class ObjectState(ObjectVersion, frozen=True, kw_only=True):
    """The last state of an object, as JSON without the fields that no reader needs."""

    uid: str
    form: str
    body: bytes


class Tombstone(ObjectVersion, frozen=True, kw_only=True):
    """Says that an object is no longer under this subject.

    `moved_to` is the object's new location; None if the object was deleted.
    """

    moved_to: TreeLocation | None = None


class Quarantined(ObjectVersion, frozen=True, kw_only=True):
    """Says that an object exists, but that its state cannot be published because of `why`.

    `body` holds the metadata from which readers determine the root owner of the object.
    """

    form: ClassVar[str] = QUARANTINED
    uid: str
    body: bytes
    why: str


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """The sync marker of a partition: all objects of a list at `version` have been published.

    `epoch` changes whenever the watcher lists all objects anew (after its start, or after the loss
    of the stream); readers then reload. The defaults of the fields are for markers from
    watchers of earlier releases.
    """

    kind: ClassVar[str] = SYNCED
    epoch: str
    version: int
    partitions: int = 64
    """The watcher's number of partitions. A reader with a different number would miss objects."""
    renewed: float = 0.0
    """Seconds between two repetitions of the marker; 0 if it is never repeated.

    The watcher repeats the marker of the first partition, and only while the stream holds
    everything that the API server reports."""
    history: str = ""
    """Identifies a period in which newer states have greater resourceVersions.

    It changes when resourceVersions begin again at a lower number, as after a restore of etcd from
    a backup.
    """
    forms: dict[str, str] = {}
    """The form in which the watcher publishes each kind (`common.bus.forms`).

    Empty for a watcher that does not number forms.
    """


ObjectMessage = ObjectState | Tombstone | Quarantined
Message = ObjectMessage | Synced


class QuarantineNotice(msgspec.Struct, frozen=True):
    """The payload of a quarantine notice."""

    why: str
    object: msgspec.Raw


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message with headers and payload, as NATS carries it."""

    headers: dict[str, str]
    payload: bytes


class UndecodableMessage(ValueError):
    """Raised if a message cannot be read; the text has the reason."""


def encode(message: Message) -> WireMessage:
    """Encode a message as headers and payload."""
    if isinstance(message, Synced):
        headers = {KIND: SYNCED, FORM: forms.get_form(SYNCED)}
        return WireMessage(headers=headers, payload=msgspec.json.encode(message))
    payload, trace = b"", get_traceparent(message)
    match message:
        case ObjectState(kind=kind, version=version, uid=uid, form=form, body=payload):
            headers = {KIND: kind, VERSION: version, UID: uid, FORM: form, TRACE: trace}
            if len(payload) > COMPRESS_ABOVE:
                headers[ENCODING] = "zlib"
                payload = zlib.compress(payload, 1)
        case Tombstone(kind=kind, version=version, moved_to=to):
            moved = "deleted" if to is None else f"moved {to.partition} {to.tree}"
            headers = {KIND: kind, VERSION: version, GONE: moved, TTL: TOMBSTONE_TTL, TRACE: trace}
        case Quarantined(kind=kind, version=version, uid=uid, body=body, why=why):
            headers = {
                KIND: QUARANTINED,
                QUARANTINED_KIND: kind,
                VERSION: version,
                UID: uid,
                FORM: message.form,
            }
            headers[TRACE] = trace
            payload = msgspec.json.encode(QuarantineNotice(why, msgspec.Raw(body)))
    return WireMessage(headers=headers, payload=payload)


def decode(subject: str, headers: Mapping[str, str], payload: bytes) -> Message:
    """Decode a message; raise `UndecodableMessage` if it is not a message of raybus."""
    kind = _require_header(headers, KIND)
    if kind == SYNCED:
        return _decode_payload(payload, Synced, f"the marker {subject}")
    where = subjects.parse_state(subject)
    if where is None:
        raise UndecodableMessage(f"{subject} is no subject of an object")
    namespace, name, uid, version = (
        where.namespace,
        where.name,
        headers.get(UID, ""),
        _require_header(headers, VERSION),
    )
    if (gone := headers.get(GONE)) is not None:
        return Tombstone(
            kind=kind,
            namespace=namespace,
            name=name,
            version=version,
            moved_to=_parse_destination(gone),
        )
    if kind != QUARANTINED:
        form, body = headers.get(FORM, ""), _decompress(headers, payload)
        return ObjectState(
            kind=kind,
            namespace=namespace,
            name=name,
            version=version,
            uid=uid,
            form=form,
            body=body,
        )
    withheld = _decode_payload(payload, QuarantineNotice, "the reason of a quarantine")
    kind, body, reason = (
        _require_header(headers, QUARANTINED_KIND),
        bytes(withheld.object),
        withheld.why,
    )
    return Quarantined(
        kind=kind, namespace=namespace, name=name, version=version, uid=uid, body=body, why=reason
    )


def get_kind(headers: Mapping[str, str]) -> str:
    """Return the kind of the object that a message is about; `Synced` for a sync marker."""
    kind = headers.get(KIND, "")
    return headers.get(QUARANTINED_KIND, "") if kind == QUARANTINED else kind


def get_traceparent(message: ObjectMessage) -> str:
    """Return the trace context of the change that a message publishes."""
    if isinstance(message, Tombstone):
        return derive_trace(f"{message.kind}/{message.namespace}/{message.name}", message.version)
    return derive_trace(message.uid, message.version)


def derive_trace(about: str, version: str) -> str:
    """Return the W3C trace context of an object's change to resourceVersion `version`.

    `about` is the uid of the object, or for a tombstone its kind, namespace and name. The trace
    context is the same each time that the change is published.
    """
    trace = blake2b(f"{about}@{version}".encode(), digest_size=16).hexdigest()
    span = blake2b(trace.encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"


def _require_header(headers: Mapping[str, str], header: str) -> str:
    value = headers.get(header)
    if not value:
        raise UndecodableMessage(f"the header {header} is missing")
    return value


def _decode_payload(payload: bytes, content: type[T], content_name: str) -> T:
    try:
        return msgspec.json.decode(payload, type=content)
    except msgspec.DecodeError as problem:
        raise UndecodableMessage(f"{content_name} does not decode: {problem}") from problem


def _parse_destination(gone: str) -> TreeLocation | None:
    match gone.split(" "):
        case ["deleted"]:
            return None
        case ["moved", partition, tree] if place := subjects.parse_location(partition, tree):
            return place
        case _:
            raise UndecodableMessage(
                f"{GONE}: {gone!r} is neither `deleted` nor `moved <partition> <tree>`"
            )


def _decompress(headers: Mapping[str, str], payload: bytes) -> bytes:
    encoding = headers.get(ENCODING, "")
    if not encoding:
        return payload
    if encoding != "zlib":
        raise UndecodableMessage(f"{ENCODING}: {encoding!r} is unknown")
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(payload, MAX_PAYLOAD_SIZE)
    except zlib.error as problem:
        raise UndecodableMessage(f"the payload does not decompress: {problem}") from problem
    if not reader.eof:
        raise UndecodableMessage(f"the payload is cut off, or larger than {MAX_PAYLOAD_SIZE} bytes")
    return body
