"""The end of a deleted root object that waits for an object in quarantine.

No reconcile decides on such a root, so none removes its finalizer. Once the finalizer has held the
deleted root for its limit, it is removed from the metadata alone, which the API server holds.
"""

from datetime import datetime

import msgspec

from common import errors, untrusted
from common.api.meta import Envelope
from common.kube.client import Kube, Patch
from common.runtime.actions import Finalizer, SetFinalizers
from common.runtime.events import EventRecorder
from common.runtime.key import Key


class QuarantineRelease(msgspec.Struct, frozen=True):
    """Removes the finalizer of deleted root objects that wait for an object in quarantine."""

    kube: Kube
    events: EventRecorder
    finalizer: Finalizer

    async def __call__(self, key: Key, now: datetime) -> datetime | None:
        """Remove the finalizer if its limit has passed; return when it passes if that is later.

        The metadata is read each time: the message in quarantine may be older than the deletion.
        The Event comes first, so that a crash between both writes loses neither.
        """
        resource, finalizer = self.events.regarding, self.finalizer
        try:
            answer = await self.kube.get_metadata(resource, key.namespace, key.name)
        except errors.NotFound:
            return None
        if untrusted.is_too_deep(answer):  # managedFields are as deep as the fields of the spec
            answer = untrusted.pruned(answer, untrusted.DEEPEST)
        meta = msgspec.json.decode(answer, type=Envelope).metadata
        if meta.deletion_timestamp is None or finalizer.name not in meta.finalizers:
            return None
        limit = finalizer.limit(meta)
        if now < (ends_at := meta.deletion_timestamp + limit):
            return ends_at
        left = tuple(each for each in meta.finalizers if each != finalizer.name)
        await self.events.record(meta, finalizer.event(meta, limit))
        change = SetFinalizers(finalizers=left).patch(meta.resource_version)
        await self.kube.patch(resource, key.namespace, key.name, Patch(body=change))
        return None
