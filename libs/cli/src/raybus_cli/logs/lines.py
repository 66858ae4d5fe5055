"""Turns the bytes of a log into lines, and a line into its output: with the name of its pod, as JSON, harmless unless it is wanted raw."""

from typing import Final

import msgspec

from common import untrusted

LONGEST: Final = 2**20
"""Bytes of a line; a longer one is divided, so that no log can fill the memory."""


class Source(msgspec.Struct, frozen=True):
    """The origin of a line."""

    pod: str
    container: str
    """Of a Serve replica the name of its log file."""

    def __str__(self) -> str:
        return f"pod/{self.pod}/{self.container}"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How lines are printed."""

    is_prefixed: bool = False
    """Whether a line begins with its origin, as that of `kubectl logs --prefix`."""
    is_raw: bool = False
    """Whether escapes for a terminal stay."""
    is_json: bool = False


class Document(msgspec.Struct, frozen=True):
    """A line for programs."""

    pod: str
    container: str
    line: str


class Splitter:
    """Collects the chunks of a stream and returns whole lines, without their ends."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes."""
        self._rest += chunk
        *whole, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        lines = [part for line in whole for part in _divided(line)]
        while len(self._rest) >= LONGEST:
            lines.append(bytes(self._rest[:LONGEST]))
            del self._rest[:LONGEST]
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, if it has no end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []


def _divided(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]


def render(source: Source, line: bytes, form: Form) -> bytes:
    """Return the output of a line, with its end."""
    if form.is_json:
        text = line.decode(errors="replace")
        found = Document(_plain(source.pod), _plain(source.container), text if form.is_raw else _plain(text))
        return msgspec.json.encode(found) + b"\n"
    prefix = f"[{_plain(str(source))}] ".encode() if form.is_prefixed else b""
    return prefix + (line if form.is_raw else _plain(line.decode(errors="replace")).encode()) + b"\n"


def _plain(text: str) -> str:
    return untrusted.plain(text.removesuffix("\r"))
