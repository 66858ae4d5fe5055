"""The client that wrote a part of an object last, as the API server notes it in `metadata.managedFields`."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

OURS: Final = "raybus-"
"""Prefix of the names of our clients."""
UNKNOWN: Final = "unknown"
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    time: datetime | None = None
    fields: dict[str, Any] = msgspec.field(default_factory=dict[str, Any], name="fieldsV1")


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: list[_Entry] = []


class _Managed(msgspec.Struct, frozen=True):
    metadata: _Meta


def of_rules(body: bytes) -> str:
    """Return the last client but ours that wrote `spec.rules` of a route."""
    entries = msgspec.json.decode(body, type=_Managed).metadata.managed_fields
    others = [
        each for each in entries if not each.manager.startswith(OURS) and "f:rules" in each.fields.get("f:spec", {})
    ]
    last = max(others, key=lambda each: each.time or _EARLIEST, default=None)
    return UNKNOWN if last is None or not last.manager else last.manager
