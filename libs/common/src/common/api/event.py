"""An event that a decision reports to a user about an object; `common.runtime.events` writes it."""

from typing import Literal

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event about an object."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


def normal(reason: str, action: str, note: str) -> Event:
    """Return an Event of the type Normal."""
    return Event(type="Normal", reason=reason, action=action, note=note)


def warning(reason: str, action: str, note: str) -> Event:
    """Return an Event of the type Warning."""
    return Event(type="Warning", reason=reason, action=action, note=note)
