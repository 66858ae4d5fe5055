"""Kubernetes Events: what a user reads in `kubectl describe` (spec raycluster §15, rayservice §13.4).

An event that repeats one of the last minutes is not sent again, so that a look that fails each time says so once. An event
that cannot be written is logged and forgotten: events tell, they decide nothing.
"""

from collections import OrderedDict
from datetime import datetime
from typing import Final

import structlog

from common import errors
from common.api.event import Event
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.kube.client import Kube
from common.kube.resources import EVENT, Resource
from common.runtime.clock import Clock

log = structlog.get_logger()

NOTE_LIMIT: Final = 1024
"""Bytes of a note that the API server accepts; a longer one is cut."""
QUIET_SECONDS: Final = 360.0
"""KubeRay's client library folds repeats into a series that ends after six minutes of silence."""
REMEMBERED: Final = 4096


class EventRecorder:
    """Writes events for one controller, each at most once per quiet time."""

    def __init__(self, kube: Kube, *, controller: str, instance: str, clock: Clock) -> None:
        self._kube = kube
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._told: OrderedDict[tuple[str, Event], float] = OrderedDict()

    async def record(self, resource: Resource, regarding: ObjectMeta, event: Event) -> None:
        """Tell an event about an object, unless it was told within the quiet time."""
        if self._is_repeated(regarding.uid, event):
            return
        now = self._clock.now()
        try:
            await self._kube.create(EVENT, regarding.namespace, self._body(resource, regarding, event, now))
        except errors.RaybusError as problem:
            log.warning("an event is lost", reason=event.reason, note=event.note, error=str(problem))

    def _is_repeated(self, uid: str, event: Event) -> bool:
        key, now = (uid, event), self._clock.monotonic()
        last = self._told.pop(key, None)
        self._told[key] = now if last is None or now - last > QUIET_SECONDS else last
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return last is not None and now - last <= QUIET_SECONDS

    def _body(self, resource: Resource, regarding: ObjectMeta, event: Event, now: datetime) -> Body:
        stamp = int(now.timestamp() * 1e9) ^ (hash((regarding.uid, event)) & 0xFFFF)
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": f"{regarding.name}.{stamp:x}", "namespace": regarding.namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:NOTE_LIMIT].decode(errors="ignore"),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
                "resourceVersion": regarding.resource_version,
            },
        }
