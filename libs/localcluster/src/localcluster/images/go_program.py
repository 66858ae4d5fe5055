"""The modules of a Go program, as Go recorded them in it (`go version -m`). Pure.

Since Go 1.18 the record stands in the program as two length-prefixed strings, 32 bytes after a magic number.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

_MAGIC: Final = b"\xff Go buildinf:"
_HEADER: Final = 32
_GUARD: Final = 16
"""Bytes around the list of modules."""
_ALIGNMENT: Final = 16
_VARINT_BITS: Final = 7
_FIELDS: Final = 3
"""The least number of fields of a line: key, path, version."""


class Module(msgspec.Struct, frozen=True):
    """One module; `checksum` is that of go.sum, empty for the program's own."""

    path: str
    version: str
    checksum: str


def modules(program: bytes) -> list[Module]:
    """Return the modules of a program; none if Go did not build it."""
    start = _record(program)
    if start is None:
        return []
    _, after = _text(program, start)
    listed, _ = _text(program, after)
    return list(_parse(listed[_GUARD:-_GUARD].decode(errors="replace")))


def _record(program: bytes) -> int | None:
    at = -1
    while (at := program.find(_MAGIC, at + 1)) >= 0:
        if at % _ALIGNMENT == 0 and program[at + len(_MAGIC) + 1] & 2:
            return at + _HEADER
    return None


def _text(program: bytes, at: int) -> tuple[bytes, int]:
    """Read a string after its length, which takes seven bits a byte."""
    length = shift = 0
    while True:
        byte = program[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + _VARINT_BITS
        if byte < 1 << _VARINT_BITS:
            return program[at : at + length], at + length


def _parse(listed: str) -> Iterator[Module]:
    found: list[Module] = []
    for line in listed.splitlines():
        key, *fields = line.split("\t")
        if len(fields) + 1 < _FIELDS:
            continue
        if key == "=>":  # in place of the one before
            found.pop()
        if key in {"mod", "dep", "=>"}:
            found.append(Module(fields[0], fields[1], fields[2] if len(fields) > _FIELDS - 1 else ""))
    yield from found
