"""Limit untrusted input before raybus decodes or shows it: size, nesting, control characters.

A few kilobytes of gzip unpack to gigabytes, so requests ask for uncompressed answers (`IDENTITY`),
and a compressed answer is rejected.

A JSON decoder recurses into each level, so a few kilobytes of brackets exhaust its stack, and the
`RecursionError` would stop the process. Therefore the nesting is checked before decoding, without
recursion and in linear time. No kind that raybus reads nests 30 levels deep; `DEEPEST` leaves room
for later versions of Kubernetes.
"""

from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from common import errors

IDENTITY: Final = {"Accept-Encoding": "identity"}
"""Request headers that ask for an uncompressed answer, whose size is known."""
HIDDEN: Final = b"[token]"
DEEPEST: Final = 100
"""Maximum nesting of a JSON text, in levels."""
CUT: Final = b'"raybus: nested too deep"'
"""The value with which `pruned` replaces each value that is nested too deep."""
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_USUAL: Final = 20
"""Nesting levels that are removed by fast string replacement before the rest are counted."""
_STEP: Final = {ord("["): 1, ord("]"): -1}
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_MARKS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_PARAMETERS: Final = "".join(map(chr, range(0x30, 0x40)))
_INTERMEDIATES: Final = "".join(map(chr, range(0x20, 0x30)))
"""Characters that may precede the final one of a terminal's control sequence (ECMA-48, 5.4)."""
_INVISIBLE: Final = (
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
)
"""Control characters above ASCII 31, line separators, and direction marks."""
_CONTROL: Final = dict.fromkeys((*range(0x09), *range(0x0B, 0x20), *_INVISIBLE), "\ufffd")
"""Characters that move the cursor or change the writing direction, except tab and line feed."""
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _INVISIBLE}


async def read(headers: Mapping[str, str], chunks: AsyncIterable[bytes], *, most: int) -> bytes:
    """Read the body of an HTTP answer.

    Raises `Unavailable` if the body is compressed or has more than `most` bytes.
    """
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
    """Mask a secret that a server repeats in its answer, so that no status or log contains it."""
    return body.replace(secret.encode(), HIDDEN) if secret else body


def outside_of_strings(text: bytes) -> bytes:
    """Return a JSON text without its strings."""
    return b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])


def is_too_deep(text: bytes, limit: int = DEEPEST) -> bool:
    """Return whether a JSON text nests more than `limit` levels."""
    if len(text) <= limit:
        return False
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # Most strings contain no bracket, so only their quotes remain, which are removed in pairs.
    marks = text.translate(_BRACKETS, _NO_MARKS).replace(b'""', b"")
    brackets = b"".join(marks.split(b'"')[::2])
    usual = min(limit, _USUAL)
    for _ in range(usual):
        brackets = brackets.replace(b"[]", b"")  # removes the innermost level
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limit - usual


def _brackets(text: bytes) -> Iterator[tuple[int, int]]:
    """For each bracket outside of strings, yield the position after it, and +1 (opening) or -1."""
    masked = text.replace(rb"\\", b"  ").replace(rb"\"", b"  ")
    position = 0
    for index, part in enumerate(masked.split(b'"')):
        if index % 2 == 0:
            for end, byte in enumerate(part.translate(_BRACKETS), start=position + 1):
                if byte in _STEP:
                    yield end, _STEP[byte]
        position += len(part) + 1


def pruned(text: bytes, limit: int) -> bytes:
    """Replace every value that is nested deeper than `limit` levels by `CUT`."""
    kept: list[bytes] = []
    depth = begin = 0
    for end, levels in _brackets(text):
        depth += levels
        if levels > 0 and depth == limit + 1:
            kept += [text[begin : end - 1], CUT]
        elif levels < 0 and depth == limit:
            begin = end
    return b"".join([*kept, text[begin:]])


def has_invisible(text: str) -> bool:
    """Return whether `escaped` would change a text."""
    return text != text.translate(_ESCAPES)


def escaped(text: str) -> str:
    r"""Escape a JSON text, or double-quoted YAML, so that it is safe to show on a terminal.

    Characters that a terminal obeys are written as `\\u…`.
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


def plain(text: str) -> str:
    """Return a text without terminal sequences; other control characters become U+FFFD."""
    if text.isprintable():
        return text
    if "\x1b" in text or "\x9b" in text:
        text = _without_sequences(text)
    return text.replace("\r\n", "\n").translate(_CONTROL)


def _without_sequences(text: str) -> str:
    r"""Remove terminal sequences (colours, cursor, title); incomplete sequences stay.

    ECMA-48: CSI (`ESC [` or U+009B), parameters, intermediates and a final character; or OSC (`ESC
    ]`), a text, and BEL or `ESC \\`.
    """
    first, *parts = text.replace("\x9b", "\x1b\x9b").split("\x1b")
    kept = [first]
    is_title_open = False
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        rest = part[1:].lstrip(_PARAMETERS).lstrip(_INTERMEDIATES)
        if is_title_open:
            kept.append(part[1:])
            is_title_open = False
        elif part.startswith(("[", "\x9b")) and "@" <= rest[:1] <= "~":
            kept.append(rest[1:])
        elif part.startswith("]") and "\x07" in part:
            kept.append(part.partition("\x07")[2])
        elif part.startswith("]") and following.startswith("\\"):
            is_title_open = True
        else:
            kept.append(part if part.startswith("\x9b") else f"\x1b{part}")
    return "".join(kept)


def clipped(text: str, most: int) -> str:
    """Return at most `most` characters of a text, stripped and without control characters."""
    short = plain(text[: most + 1].strip())
    return short if len(short) <= most else f"{short[: most - 1]}…"


def joined(texts: Sequence[str], most: int) -> str:
    """Return the first `most` texts, separated by commas, and the number of those left out."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def bounded(moment: datetime) -> datetime:
    """Return the time nearest to `moment` between the years 1970 and 9000, in UTC.

    A status may contain any time. Python raises `OverflowError` if a sum is beyond the year 9999,
    or if the time in UTC is before the year 1.
    """
    return min(max(moment, _EARLIEST), _LATEST).astimezone(UTC)
