"""Release a deleted root object that waits for an object in quarantine (ADR 49).

Such a root object is not reconciled, so no reconcile removes its finalizer. This module removes the
finalizer after a time limit. It needs only the object's metadata, which is always readable.
"""

from datetime import datetime

import msgspec

from common import errors, untrusted
from common.api.meta import Envelope
from common.kube.client import Kube, PatchRequest
from common.runtime.actions import Finalizer, SetFinalizers
from common.runtime.events import EventRecorder
from common.runtime.key import Key


class QuarantineRelease(msgspec.Struct, frozen=True):
    """Removes raybus's finalizer from a deleted root object that waits for a quarantined object."""

    kube: Kube
    events: EventRecorder
    finalizer: Finalizer

    async def __call__(self, key: Key, now: datetime) -> datetime | None:
        """Remove the finalizer if its time limit has passed; otherwise return when it passes.

        The metadata is read from the API server, since the message in quarantine may be older than
        the deletion. An Event that reports the removal is recorded first: after a crash in between,
        both are repeated.
        """
        resource, finalizer = self.events.regarding, self.finalizer
        try:
            answer = await self.kube.get_metadata(resource, key.namespace, key.name)
        except errors.NotFound:
            return None
        if untrusted.is_too_deep(answer):  # managedFields may be as deeply nested as the spec
            answer = untrusted.pruned(answer, untrusted.DEEPEST)
        meta = msgspec.json.decode(answer, type=Envelope).metadata
        if meta.deletion_timestamp is None or finalizer.name not in meta.finalizers:
            return None
        limit = finalizer.limit(meta)
        if now < (ends_at := meta.deletion_timestamp + limit):
            return ends_at
        remaining = tuple(
            finalizer_name for finalizer_name in meta.finalizers if finalizer_name != finalizer.name
        )
        await self.events.record(meta, finalizer.event(meta, limit))
        change = SetFinalizers(finalizers=remaining).patch(meta.resource_version)
        await self.kube.patch(resource, key.namespace, key.name, PatchRequest(body=change))
        return None
