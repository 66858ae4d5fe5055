"""A finding of lint about one field."""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """The severity."""

    ERROR = "error"
    """It would be rejected, or would not have its apparent effect."""
    ADVICE = "advice"
    """It works; another value would be better."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One finding about one field."""

    file: str
    line: int
    level: Level
    field: str
    text: str
