"""What the bus holds for an object with a state that cannot be published: pure.

Readers make no decision on an object in quarantine, nor on the root object that it belongs to; so they need the metadata by which that is found,
and the reason. Everything else goes on.
"""

from typing import Final

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.bus.messages import Quarantined, State

LABELS: Final = frozenset(
    {
        labels.CLUSTER,
        labels.ORIGIN_NAME,
        labels.ORIGIN_KIND,
        labels.SERVICE_NAME,
        labels.HEADLESS_WORKER_SERVICE,
    }
)
"""By these a reader finds the root."""
LONGEST_REASON: Final = 512


class Envelope(msgspec.Struct, frozen=True):
    """An object as far as its metadata."""

    metadata: ObjectMeta


def of(kind: str, meta: ObjectMeta, why: str) -> Quarantined:
    """Return what is published in place of an object; small, whatever the object holds."""
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels={name: value for name, value in meta.labels.items() if name in LABELS},
        owner_references=[owner for owner in meta.owner_references if owner.controller],
    )
    return Quarantined(
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        body=msgspec.json.encode(Envelope(kept)),
        why=why[:LONGEST_REASON],
    )


def of_state(state: State, why: str) -> Quarantined:
    """Return what is published in place of a state that the server does not take."""
    try:
        meta = msgspec.json.decode(state.body, type=Envelope).metadata
    except (msgspec.DecodeError, RecursionError):
        meta = ObjectMeta()
    place = {"name": state.name, "namespace": state.namespace, "uid": state.uid, "resource_version": state.version}
    return of(state.kind, msgspec.structs.replace(meta, **place), why)
