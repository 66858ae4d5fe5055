"""Searches messages for secret values; pure."""

import base64
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, cast
from urllib.parse import quote

import msgspec

from common.bus import messages
from common.bus.nats import StoredMessage
from support.leaks.sought import PATTERNS, Sought

WHOLE: Final = frozenset({"RayCluster", "RayService"})
"""Kinds whose state contains all that their user wrote."""
ENVIRONMENT: Final = ("env", "envFrom")


class Message(msgspec.Struct, frozen=True):
    """A message of a stream."""

    stream: str
    stored: StoredMessage


class Leak(msgspec.Struct, frozen=True):
    """A secret that was found in a message, without its value."""

    where: str
    what: str

    def __str__(self) -> str:
        """Return the leak as one line."""
        return f"{self.where}: {self.what}"


def leaks(found: Iterable[Message], sought: Sequence[Sought]) -> list[Leak]:
    """Return all leaks of the messages."""
    spelled = [(each, _spellings(each.value)) for each in sought]
    return [leak for message in found for leak in _in_message(message, spelled)]


def _in_message(
    message: Message, spelled: Sequence[tuple[Sought, tuple[bytes, ...]]]
) -> list[Leak]:
    stored = message.stored
    payload = _payload(stored)
    head = "\n".join(
        [stored.subject, *(f"{name}: {value}" for name, value in stored.headers.items())]
    )
    text = head.encode() + b"\n" + payload
    is_whole = stored.headers.get(messages.KIND, "") in WHOLE
    where = f"{message.stream} {stored.subject} ({stored.sequence})"
    leaks = [Leak(where, pattern.name) for pattern in PATTERNS if pattern.expression.search(text)]
    leaks += [
        Leak(where, each.origin)
        for each, spellings in spelled
        if not (is_whole and each.is_environment)
        and any(spelling in text for spelling in spellings)
    ]
    if not is_whole and (field := _environment(payload)) is not None:
        leaks.append(Leak(where, f"the field {field}"))
    return leaks


def _spellings(value: bytes) -> tuple[bytes, ...]:
    """Return all spellings of a value: in clear, in JSON, in JSON inside JSON, in a URL, and in
    base64 at every alignment.
    """
    text = value.decode(errors="replace")
    inside = {
        base64.b64encode(b"\0" * shift + value)[(0, 2, 3)[shift] :].rstrip(b"=")[:-1]
        for shift in range(3)
    }
    json = msgspec.json.encode(text)[1:-1]
    nested = msgspec.json.encode(json.decode())[1:-1]
    return tuple({value, json, nested, quote(text, safe="").encode(), *inside})


def _payload(stored: StoredMessage) -> bytes:
    if stored.headers.get(messages.ENCODING) == "zlib":
        return zlib.decompress(stored.payload)
    return stored.payload


def _environment(payload: bytes) -> str | None:
    """Return the name of a field at any depth that contains environment variables; labels with such
    a name do not count.
    """
    try:
        return _field(msgspec.json.decode(payload)) if payload else None
    except msgspec.DecodeError:
        return None


def _field(value: object) -> str | None:
    if isinstance(value, list):
        return _first(cast("list[object]", value))
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, object]", value)
    own = next((name for name in ENVIRONMENT if isinstance(fields.get(name), list)), None)
    return own or _first(fields.values())


def _first(values: Iterable[object]) -> str | None:
    return next((found for each in values if (found := _field(each))), None)
