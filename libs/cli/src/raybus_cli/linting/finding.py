"""What lint has to say of one field."""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How much it matters."""

    ERROR = "error"
    """It would be refused, or would not do what it says."""
    ADVICE = "advice"
    """It works; this would be better."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing about one field."""

    file: str
    line: int
    level: Level
    field: str
    text: str
