"""Records in annotations: JSON and timestamps that raybus writes and anybody can overwrite.

A value that raybus cannot have written counts as absent: JSON that is nested too deep for a
decoder, times without a time zone or outside of 1970 to 2200, and numbers and texts beyond the
limits below. So readers can calculate with the values safely.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec

from common import untrusted

LEVELS: Final = 16
"""Maximum nesting levels of a record's JSON. The deepest record of raybus has four."""
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
MAX_NUMBER: Final = 2**31 - 1
MAX_TEXT_LENGTH: Final = 1024
"""Maximum characters of one text in a record."""


class AnnotationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of records and their parts; raises `ValueError` for a value beyond the limits."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if (problem := _problem(getattr(self, name))) is not None:
                raise ValueError(f"{name} {problem}")


T = TypeVar("T", bound=AnnotationRecord)


MAX_REMEMBERED_TEXT: Final = 16 * 1024
"""Maximum characters of an annotation whose decoded record is cached."""


def decode(text: str, kind: type[T]) -> T | None:
    """Decode a record; return None if raybus cannot have written the text.

    Results are cached, because one reconcile decodes the same annotation many times.
    """
    if len(text) > MAX_REMEMBERED_TEXT:
        return _decode(text, kind)
    return cast("T | None", _remembered(text, kind))


@lru_cache(maxsize=256)
def _remembered(text: str, kind: type[AnnotationRecord]) -> AnnotationRecord | None:
    return _decode(text, kind)


def _decode(text: str, kind: type[T]) -> T | None:
    body = text.encode(errors="replace")
    if untrusted.is_too_deep(body, LEVELS):
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        return None


def moment(text: str | None) -> datetime | None:
    """Parse the time in an annotation; None if raybus cannot have written it."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment if moment is not None and _problem(moment) is None else None


def _problem(value: Any) -> str | None:
    match value:
        case datetime() if value.tzinfo is None or not EARLIEST <= value <= LATEST:
            return f"is not a moment between {EARLIEST.year} and {LATEST.year} with a time zone"
        case int() if not 0 <= value <= MAX_NUMBER:
            return f"is not between 0 and {MAX_NUMBER}"
        case str() if len(value) > MAX_TEXT_LENGTH:
            return f"has more than {MAX_TEXT_LENGTH} characters"
        case _:
            return None
