"""All events in the stream RAY_EVENTS, for programs that read both upgrade and job events."""

from typing import Any, Final

import msgspec

from common.bus.cloud_events import CloudEvent, EventData, EventFamily
from common.ray import job_events
from common.upgrade import events as upgrade_events

FAMILIES: Final[tuple[EventFamily[Any], ...]] = (upgrade_events.FAMILY, job_events.FAMILY)
KINDS: Final[dict[str, type[EventData]]] = {**upgrade_events.KINDS, **job_events.KINDS}
"""The struct with the data of each kind of event. Upgrade events and job events share no kind."""


class _Envelope(msgspec.Struct, frozen=True):
    type: str


def find_family(event_type: str) -> EventFamily[Any] | None:
    """Return the family of a CloudEvents type; None for a type that this release does not know."""
    return next((family for family in FAMILIES if family.has_type(event_type)), None)


def kind_of(event_type: str) -> str:
    """Return the kind of a CloudEvents type; an unknown type is returned unchanged."""
    family = find_family(event_type)
    return event_type if family is None else family.kind_of(event_type)


def decode(payload: bytes) -> CloudEvent[EventData]:
    """Decode an upgrade event or a job event.

    If the kind of the event is unknown, only the common fields of its family are decoded.
    Raises `msgspec.DecodeError` if the payload is no event of a known family.
    """
    event_type = msgspec.json.decode(payload, type=_Envelope).type
    family = find_family(event_type)
    if family is None:
        raise msgspec.ValidationError(f"the type {event_type[:100]!r} is none of raybus's")
    return family.decode(payload)
