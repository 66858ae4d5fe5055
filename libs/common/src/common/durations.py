"""Parse and format durations as Go does (spec rayservice §3.2, §15)."""

from datetime import timedelta
from functools import lru_cache
from typing import Final

import re2

_UNITS: Final = {
    "ns": 1,
    "us": 1e3,
    "µs": 1e3,
    "μs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "m": 60e9,
    "h": 3600e9,
}
_PART: Final = re2.compile(rf"([0-9]+\.?[0-9]*|\.[0-9]+)({'|'.join(_UNITS)})")
MAX_LENGTH: Final = 100
"""Maximum characters of a duration.

The time for matching is quadratic in the length of a number, and an annotation may have 256 KiB."""
_WHOLE: Final = re2.compile(rf"[+-]?(?:{_PART.pattern})+")


def parse(text: str) -> timedelta | None:
    """Parse a Go duration such as `5m`, `1h30m` or `0`.

    Return None for any other text, and for a duration beyond Go's maximum (292 years).
    """
    if text in {"0", "+0", "-0"}:
        return timedelta(0)
    return None if len(text) > MAX_LENGTH else _parse(text)


@lru_cache(maxsize=1024)
def _parse(text: str) -> timedelta | None:
    if not _WHOLE.fullmatch(text):
        return None
    nanoseconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if nanoseconds >= 2**63:
        return None
    length = timedelta(microseconds=nanoseconds / 1_000)
    return -length if text.startswith("-") else length


def parse_or_seconds(text: str) -> timedelta | None:
    """Parse a Go duration or a whole number of seconds; None if it is neither."""
    text = text.strip()[: MAX_LENGTH + 1]
    return parse(f"{text}s" if text.isascii() and text.isdigit() else text)


def text(length: timedelta) -> str:
    """Format a duration as Go does: `6s`, `1m0.5s`, `1h0m0s`."""
    microseconds = length // timedelta(microseconds=1)
    if 0 < microseconds < 1_000_000:
        return f"{microseconds}µs" if microseconds < 1_000 else f"{_decimal(microseconds, 1_000)}ms"
    minutes, rest = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 1_000_000)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _decimal(amount: int, unit: int) -> str:
    return f"{amount / unit:.6f}".rstrip("0").rstrip(".")
