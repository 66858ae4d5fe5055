"""Clips texts that others wrote before they reach a status, an Event, a log line."""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""A sequence for a terminal: colours, cursor, title."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves a cursor or the direction of writing; tab and line feed stay."""


def plain(text: str) -> str:
    """Return a text without sequences for a terminal, in which each other control character is replaced by U+FFFD."""
    return _CONTROL.sub("\ufffd", _ESCAPE.sub("", text).replace("\r\n", "\n"))


def clipped(text: str, most: int) -> str:
    """Return the first `most` characters of a text, without surrounding blanks and without control characters."""
    short = plain(text[: most + 1].strip())
    return short if len(short) <= most else f"{short[: most - 1]}…"
