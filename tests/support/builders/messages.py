"""Messages of the state stream, from the JSON of the object that they are about."""

import msgspec

from common.api.meta import Envelope
from common.bus.messages import ObjectState, Quarantined, Tombstone
from common.bus.subjects import TreeLocation


def a_state(kind: str, body: bytes) -> ObjectState:
    """Return the message with the state of an object."""
    meta = msgspec.json.decode(body, type=Envelope).metadata
    return ObjectState(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        version=meta.resource_version,
        uid=meta.uid,
        form="1.0",
        body=body,
    )


def a_tombstone(kind: str, body: bytes, *, moved_to: TreeLocation | None = None) -> Tombstone:
    """Return the message that an object is gone in a state, or stands elsewhere."""
    state = a_state(kind, body)
    return Tombstone(
        kind=kind,
        namespace=state.namespace,
        name=state.name,
        version=state.version,
        moved_to=moved_to,
    )


def a_quarantine(kind: str, body: bytes, why: str) -> Quarantined:
    """Return the message that the state of an object cannot be published."""
    state = a_state(kind, body)
    return Quarantined(
        kind=kind,
        namespace=state.namespace,
        name=state.name,
        version=state.version,
        uid=state.uid,
        body=body,
        why=why,
    )
