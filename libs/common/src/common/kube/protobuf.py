"""Protobuf as the API server writes it: fields of a message, envelopes, watch events.

A reader names the fields that it wants; all others are skipped by their length, so a large object
costs little. The time is linear in the size of a message, whatever it contains. The numbers of the
fields are those of `generated.proto` in `k8s.io/apimachinery` and `k8s.io/api`, and they never
change. ADR 53 compares this reader with Google's library.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from common import errors

T = TypeVar("T")

ACCEPT: Final = "application/vnd.kubernetes.protobuf,application/json"
"""Content types that a request accepts, the preferred one first."""
ACCEPT_WATCH: Final = "application/vnd.kubernetes.protobuf;stream=watch,application/json"
MAGIC: Final = b"k8s\0"
"""First bytes of an envelope."""
MAX_FRAME_SIZE: Final = 16 * 2**20 - 1
"""Maximum bytes of a watch event, as in client-go.

A frame begins with its size in four bytes. The first byte of a legal frame is 0, which shows that
the answer is not JSON.
"""
_SIZE_BYTES: Final = 4
_MAX_SHIFT: Final = 63
"""Maximum shift in bits: a varint has at most ten bytes of seven bits."""
_SIGN: Final = 1 << 63
_VARINT: Final = 0
_SIZED: Final = 2
_WITH_NUMBER: Final = (_SIZED, _VARINT)
"""Wire types with a number after the tag: the value itself, or the size of the value in bytes."""
_FIXED_SIZES: Final = {1: 8, 5: 4}
_ALL: Final = (1 << 64) - 1
_ESCAPED: Final = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")


class MalformedMessage(ValueError):
    """The bytes are not a message of the expected kind."""


Field: TypeAlias = tuple[str, Callable[[Any], Any], bool]
"""A field to read: its key in the result of `read_fields`, the function that converts its value
(bytes, or an unsigned number of 64 bits), and whether it is repeated.

It is a plain tuple, because a named one takes longer to unpack.
"""
Fields: TypeAlias = Mapping[int, Field]
"""Fields to read, by their tag: the number of the field and its wire type."""


def read_text(data: bytes) -> str:
    """Decode a string. Each invalid UTF-8 byte becomes U+FFFD, as in JSON from the API server.

    Such bytes occur if a client writes in protobuf, because the API server stores them unchecked.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape").translate(_ESCAPED)


def read_int(value: int) -> int:
    """Return an unsigned number of 64 bits as a signed one."""
    return value - (1 << 64) if value & _SIGN else value


def read_bytes(data: bytes) -> bytes:
    """Return a value as it is, to be read later."""
    return data


def message(
    number: int, name: str, read: Callable[[bytes], Any], *, repeated: bool = False
) -> tuple[int, Field]:
    """Describe a field to read whose value is a message or otherwise length-delimited."""
    return number << 3 | 2, (name, read, repeated)


def text(number: int, name: str, *, repeated: bool = False) -> tuple[int, Field]:
    """Describe a field to read whose value is a string."""
    return message(number, name, read_text, repeated=repeated)


def integer(number: int, name: str) -> tuple[int, Field]:
    """Describe a field to read whose value is an int32 or int64."""
    return number << 3, (name, read_int, False)


def boolean(number: int, name: str) -> tuple[int, Field]:
    """Describe a field to read whose value is a boolean."""
    return number << 3, (name, bool, False)


def read_fields(data: bytes, fields: Fields) -> dict[str, Any]:
    """Return the values of those `fields` that a message has, by name.

    Raises `MalformedMessage` if the bytes are not a message.
    """
    values: dict[str, Any] = {}
    at, end, wanted = 0, len(data), fields.get
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = _read_varint(data, at - 1)
            wire_type = tag & 7
            if wire_type not in _WITH_NUMBER:
                at += _get_fixed_size(wire_type)
                continue
            value = data[at]
            at += 1
            if value > 127:
                value, at = _read_varint(data, at - 1)
            begin = at
            if wire_type:
                at += value
            if (field := wanted(tag)) is None:
                continue
            name, read, is_repeated = field
            result = read(data[begin:at] if wire_type else value)
            if is_repeated:
                values.setdefault(name, []).append(result)
            else:
                values[name] = result
    except IndexError:
        raise MalformedMessage("the message ends within a number") from None
    if at > end:
        raise MalformedMessage("a field ends behind its message")
    return values


def _get_fixed_size(wire_type: int) -> int:
    if wire_type not in _FIXED_SIZES:
        raise MalformedMessage(f"unknown wire type {wire_type}")
    return _FIXED_SIZES[wire_type]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _ALL, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise MalformedMessage("a number has more than 64 bits")


def build_reader(
    build: Callable[..., T], *fields: tuple[int, Field], **defaults: Any
) -> Callable[[bytes], T]:
    """Return a function that reads a message and passes its fields to `build` by name.

    `defaults` are the values of absent fields for which `build` has no default.
    """
    wanted = dict(fields)
    if not defaults:
        return lambda data: build(**read_fields(data, wanted))
    return lambda data: build(**{**defaults, **read_fields(data, wanted)})


def cache_results(
    read: Callable[[bytes], T], *, entries: int, max_size: int
) -> Callable[[bytes], T]:
    """Return `read` with a cache of its last results. The results must be immutable.

    Results for more than `max_size` bytes are not cached, so that no user can fill the memory.
    """
    remembered = lru_cache(entries)(read)
    return lambda data: remembered(data) if len(data) <= max_size else read(data)


class EncodedObject(NamedTuple):
    """An object that is not yet decoded, and its kind."""

    kind: str
    content: bytes


class WatchEvent(NamedTuple):
    """An event of a watch."""

    type: str
    object: EncodedObject


class Page(NamedTuple):
    """A page of a list."""

    version: str
    go_on: str
    """Token of the next page; empty on the last one."""
    items: list[bytes]


class ObjectKey(NamedTuple):
    """Namespace, name and resourceVersion, which identify one state of an object of its kind."""

    namespace: str = ""
    name: str = ""
    version: str = ""


_type_meta: Final = dict([text(2, "kind")])


@lru_cache(16)
def _read_kind(data: bytes) -> str:
    return read_fields(data, _type_meta).get("kind", "")


_unknown: Final = dict(
    [
        message(1, "kind", _read_kind),
        message(2, "content", read_bytes),
        text(3, "encoding"),
    ]
)
_raw_extension: Final = dict([message(1, "raw", read_bytes)])
_event: Final = dict([text(1, "type"), message(2, "object", read_bytes)])
_list_meta: Final = dict([text(2, "version"), text(3, "go_on")])
_list: Final = dict(
    [message(1, "meta", read_bytes), message(2, "items", read_bytes, repeated=True)]
)
_key: Final = build_reader(ObjectKey, text(1, "name"), text(3, "namespace"), text(6, "version"))
_object: Final = dict([message(1, "key", _key)])


def is_envelope(body: bytes) -> bool:
    """Return whether the body of an answer is protobuf."""
    return body.startswith(MAGIC)


def open_envelope(data: bytes) -> EncodedObject:
    """Return the object in an envelope (`runtime.Unknown`)."""
    if not is_envelope(data):
        raise MalformedMessage(f"not an envelope of the API server: {data[:16]!r}")
    values = read_fields(data[len(MAGIC) :], _unknown)
    if encoding := values.get("encoding"):
        raise MalformedMessage(f"the envelope is encoded: {encoding[:20]}")
    return EncodedObject(values.get("kind", ""), values.get("content", b""))


def read_page(body: bytes, kind: str) -> Page:
    """Return a page of a list of objects of `kind`, each still encoded."""
    envelope = open_envelope(body)
    if envelope.kind != f"{kind}List":
        raise MalformedMessage(f"a {envelope.kind[:60]} instead of a list of {kind}")
    values = read_fields(envelope.content, _list)
    meta = read_fields(values.get("meta", b""), _list_meta)
    return Page(meta.get("version", ""), meta.get("go_on", ""), values.get("items", []))


def read_event(frame: bytes) -> WatchEvent:
    """Return the event in a frame of a watch."""
    values = read_fields(frame, _event)
    raw = read_fields(values.get("object", b""), _raw_extension).get("raw", b"")
    return WatchEvent(values.get("type", ""), open_envelope(raw))


def read_key(content: bytes) -> ObjectKey:
    """Return namespace, name and resourceVersion of an object of any kind."""
    return read_fields(content, _object).get("key", ObjectKey())


class FrameSplitter:
    """Splits the answer to a watch into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes of the answer; yield the frames that are complete."""
        buffer, at = self._buffer, 0
        buffer += chunk
        try:
            while len(buffer) >= (begin := at + _SIZE_BYTES):
                size = int.from_bytes(buffer[at:begin])
                if size > MAX_FRAME_SIZE:
                    raise MalformedMessage(f"an event of {size} bytes")
                if len(buffer) < begin + size:
                    return
                at = begin + size
                yield bytes(buffer[begin:at])
        finally:
            del buffer[:at]

    def end(self) -> None:
        """Raise `Unavailable` if the answer ended within a frame.

        The next watch delivers the event of that frame again.
        """
        if self._buffer:
            raise errors.Unavailable("the watch ended within an event")
