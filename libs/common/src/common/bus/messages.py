"""The contract of the state stream: the content of its messages, and their form on the wire.

A message is one of four: the last state of an object, a tombstone, the notice that an object's state cannot be published (it is in
quarantine), or a sync marker, by which the watcher declares a partition complete.
The wire form is a golden file per message in `tests/golden/messages`; readers ignore headers that they do not know.

    header                content
    Raybus-Kind           Kubernetes' name of the kind, such as `RayCluster`; `Synced` for a sync marker; `Quarantined`
    Raybus-Version        resourceVersion of the state, or at which the object was gone
    Raybus-Uid            uid of the object
    Raybus-Form           form of the message (`common.bus.forms`), 1.0 when absent; another form is published again though the version is the same
    Raybus-Encoding       `zlib` when the payload is compressed
    Raybus-Gone           `deleted`, or `moved <partition>` when the object now stands under another subject
    Raybus-Quarantined    kind of an object that is in quarantine; a reader that does not know the header passes over the kind `Quarantined`
    Nats-TTL              how long a tombstone stays
    traceparent           W3C trace context; one trace for each change of an object
"""

import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import ClassVar, Final, TypeVar

import msgspec

from common.bus import subjects
from common.bus.subjects import Place, Tree

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
"""Bytes; below, compression costs more than it saves."""
LARGEST: Final = 16 * 1024 * 1024
"""Bytes after decompression: ten times what etcd takes, so that a hostile payload cannot fill the memory."""
TOMBSTONE_TTL: Final = "1h"
"""Longer than any reader stays away without a reload, and than the watcher's longest time between two lists."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a message is about, and its resourceVersion."""

    kind: str
    namespace: str
    name: str
    version: str


class State(About, frozen=True, kw_only=True):
    """The last state of an object, as trimmed JSON."""

    uid: str
    form: str
    body: bytes


class Gone(About, frozen=True, kw_only=True):
    """An object is no longer under this subject; `moved_to` is where it stands now, if it lives on."""

    moved_to: Place | None = None


class Quarantined(About, frozen=True, kw_only=True):
    """An object exists, and its state cannot be published; `body` holds the metadata by which it is found, `why` the reason."""

    form: ClassVar[str] = QUARANTINED
    uid: str
    body: bytes
    why: str


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """The sync marker of a partition: it holds everything that a list at `version` held.

    `epoch` changes whenever the watcher had to list anew (start, lost stream); a reader that meets a new one reloads. A field that the
    watcher of an earlier release does not publish has the default that is right for it.
    """

    kind: ClassVar[str] = SYNCED
    epoch: str
    version: int
    partitions: int = 64
    """The number of partitions of the watcher; a reader with another number would search for objects where they are not."""
    renewed: float = 0.0
    """Interval in seconds at which the watcher repeats the marker while the stream has all that the API server reports; 0: never."""
    history: str = ""
    """Changes when versions began again at a lower one, as they do when etcd is restored from a backup; then newer is no longer greater."""
    forms: dict[str, str] = {}
    """The form in which the watcher publishes each kind (`common.bus.forms`); empty: it is of a build that did not number them."""


ObjectMessage = State | Gone | Quarantined
Message = ObjectMessage | Synced


class Withheld(msgspec.Struct, frozen=True):
    """The payload of an object in quarantine."""

    why: str
    object: msgspec.Raw


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A message as NATS carries it."""

    headers: dict[str, str]
    payload: bytes


class Undecodable(ValueError):
    """A message on the wire is not one of ours; the text has the reason."""


def encode(message: Message) -> Wire:
    """Write a message in its wire form."""
    if isinstance(message, Synced):
        return Wire(headers={KIND: SYNCED}, payload=msgspec.json.encode(message))
    payload, trace = b"", traceparent_of(message)
    match message:
        case State(kind=kind, version=version, uid=uid, form=form, body=payload):
            headers = {KIND: kind, VERSION: version, UID: uid, FORM: form, TRACE: trace}
            if len(payload) > COMPRESS_ABOVE:
                headers[ENCODING] = "zlib"
                payload = zlib.compress(payload, 1)
        case Gone(kind=kind, version=version, moved_to=to):
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
            payload = msgspec.json.encode(Withheld(why, msgspec.Raw(body)))
    return Wire(headers=headers, payload=payload)


def decode(subject: str, headers: Mapping[str, str], payload: bytes) -> Message:
    """Read a message; raise `Undecodable` for what is none of ours."""
    kind = _needed(headers, KIND)
    if kind == SYNCED:
        return _decoded(payload, Synced, f"the marker {subject}")
    where = subjects.parse_state(subject)
    if where is None:
        raise Undecodable(f"{subject} is no subject of an object")
    namespace, name, uid, version = (
        where.namespace,
        where.name,
        headers.get(UID, ""),
        _needed(headers, VERSION),
    )
    if (gone := headers.get(GONE)) is not None:
        return Gone(
            kind=kind, namespace=namespace, name=name, version=version, moved_to=_destination(gone)
        )
    if kind != QUARANTINED:
        form, body = headers.get(FORM, ""), _body(headers, payload)
        return State(
            kind=kind,
            namespace=namespace,
            name=name,
            version=version,
            uid=uid,
            form=form,
            body=body,
        )
    withheld = _decoded(payload, Withheld, "the reason of a quarantine")
    kind, body, why = _needed(headers, QUARANTINED_KIND), bytes(withheld.object), withheld.why
    return Quarantined(
        kind=kind, namespace=namespace, name=name, version=version, uid=uid, body=body, why=why
    )


def kind_of(headers: Mapping[str, str]) -> str:
    """Return the kind of the object that a message is about."""
    kind = headers.get(KIND, "")
    return headers.get(QUARANTINED_KIND, "") if kind == QUARANTINED else kind


def traceparent_of(message: ObjectMessage) -> str:
    """Return the trace context of the change that a message publishes."""
    if isinstance(message, Gone):
        return trace_of(f"{message.kind}/{message.namespace}/{message.name}", message.version)
    return trace_of(message.uid, message.version)


def trace_of(about: str, version: str) -> str:
    """Return the trace context of one change; the same for each time that it is published."""
    trace = blake2b(f"{about}@{version}".encode(), digest_size=16).hexdigest()
    span = blake2b(trace.encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"


def _needed(headers: Mapping[str, str], header: str) -> str:
    value = headers.get(header)
    if not value:
        raise Undecodable(f"the header {header} is missing")
    return value


def _decoded(payload: bytes, content: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(payload, type=content)
    except msgspec.DecodeError as problem:
        raise Undecodable(f"{what} does not decode: {problem}") from problem


def _destination(gone: str) -> Place | None:
    match gone.split(" "):
        case ["deleted"]:
            return None
        case ["moved", partition, (Tree.SERVICE | Tree.CLUSTER) as tree] if partition.isdecimal():
            return Place(int(partition), Tree(tree))
        case _:
            raise Undecodable(
                f"{GONE}: {gone!r} is neither `deleted` nor `moved <partition> <tree>`"
            )


def _body(headers: Mapping[str, str], payload: bytes) -> bytes:
    encoding = headers.get(ENCODING, "")
    if not encoding:
        return payload
    if encoding != "zlib":
        raise Undecodable(f"{ENCODING}: {encoding!r} is unknown")
    reader = zlib.decompressobj()
    try:
        body = reader.decompress(payload, LARGEST)
    except zlib.error as problem:
        raise Undecodable(f"the payload does not decompress: {problem}") from problem
    if not reader.eof:
        raise Undecodable(f"the payload is cut off, or larger than {LARGEST} bytes")
    return body
