"""Messages of the state stream, from the JSON of the object that they are about."""

import msgspec

from common.api.meta import Envelope
from common.bus.messages import Gone, Quarantined, State
from common.bus.subjects import Place


def a_state(kind: str, body: bytes) -> State:
    """Return the message with the state of an object."""
    meta = msgspec.json.decode(body, type=Envelope).metadata
    return State(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        version=meta.resource_version,
        uid=meta.uid,
        form="1.0",
        body=body,
    )


def a_tombstone(kind: str, body: bytes, *, moved_to: Place | None = None) -> Gone:
    """Return the message that an object is gone in a state, or stands elsewhere."""
    state = a_state(kind, body)
    return Gone(
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
