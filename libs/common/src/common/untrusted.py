"""What others wrote, held to bounds before raybus reads it or passes it on: bytes of an answer, depth of a JSON text, signs of a message.

A few kilobytes of gzip unpack to gigabytes, so an answer is asked for as it is (`IDENTITY`), and a compressed one is refused.

A decoder recurses into each level, so a few kilobytes of brackets exhaust its stack: `RecursionError` ends the process unless the text
is checked before, without recursion and in time linear in its length. No kind that raybus reads nests 30 levels deep; `DEEPEST` leaves
room for what a later Kubernetes adds.
"""

import re
from collections.abc import AsyncIterable, Mapping
from itertools import accumulate
from typing import Final

from common import errors

IDENTITY: Final = {"Accept-Encoding": "identity"}
"""Headers of a request for an answer that is not compressed."""
HIDDEN: Final = b"[token]"
DEEPEST: Final = 100
"""Levels."""
CUT: Final = b'"raybus: nested too deep"'
"""Stands in the output of `pruned` for a value below the limit."""
_USUAL: Final = 20
"""Levels that are counted the fast way."""
_STEP: Final = {ord("["): 1, ord("]"): -1}
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_MARKS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_UP_TO_A_BRACKET: Final = re.compile(
    rb'[^\[\]{}"]*(?:"(?:[^"\\]|\\.)*"[^\[\]{}"]*)*([\[\]{}])', re.DOTALL
)
_ESCAPE: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""A sequence for a terminal: colours, cursor, title."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves a cursor or the direction of writing; tab and line feed stay."""


async def read(headers: Mapping[str, str], chunks: AsyncIterable[bytes], *, most: int) -> bytes:
    """Return the body; `Unavailable` for one that is compressed or has more than `most` bytes."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise errors.Unavailable(
            f"the answer is compressed ({encoding[:20]}), which was not asked for"
        )
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise errors.Unavailable(f"the answer has more than {most} bytes")
    return bytes(body)


def without(body: bytes, secret: str) -> bytes:
    """Return a body in which a secret that was sent along, and that the server repeats, is replaced; no status or log may have it."""
    return body.replace(secret.encode(), HIDDEN) if secret else body


def outside_of_strings(text: bytes) -> bytes:
    """Return a JSON text without its strings: brackets, commas, numbers and names of constants."""
    return b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def is_too_deep(text: bytes, limit: int = DEEPEST) -> bool:
    """Return whether a JSON text nests more than `limit` levels."""
    if len(text) <= limit:
        return False
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Most strings have no bracket, so nothing but their quotes is left of them.
    marks = text.translate(_BRACKETS, _NO_MARKS).replace(b'""', b"")
    brackets = b"".join(marks.split(b'"')[::2])
    usual = min(limit, _USUAL)
    for _ in range(usual):
        brackets = brackets.replace(b"[]", b"")  # takes away the innermost level
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limit - usual


def pruned(text: bytes, limit: int) -> bytes:
    """Return a JSON text with `CUT` for every value that begins below `limit` levels; the rest is unchanged."""
    kept: list[bytes] = []
    depth = begin = 0
    for found in _UP_TO_A_BRACKET.finditer(text):
        if found[1] in b"[{":
            depth += 1
            if depth == limit + 1:
                kept += [text[begin : found.end() - 1], CUT]
        else:
            depth -= 1
            if depth == limit:
                begin = found.end()
    return b"".join([*kept, text[begin:]])


def plain(text: str) -> str:
    """Return a text without sequences for a terminal, in which each other control character is replaced by U+FFFD."""
    return _CONTROL.sub("\ufffd", _ESCAPE.sub("", text).replace("\r\n", "\n"))


def clipped(text: str, most: int) -> str:
    """Return the first `most` characters of a text, without surrounding blanks and without control characters."""
    short = plain(text[: most + 1].strip())
    return short if len(short) <= most else f"{short[: most - 1]}…"
