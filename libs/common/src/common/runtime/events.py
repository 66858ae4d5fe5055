"""Kubernetes Events, which `kubectl describe` shows (spec raycluster §15, rayservice §13.4).

Repeats are counted in the Event's series, as in KubeRay's client library. The first repeat is
written at once, later ones every six minutes. After six minutes without a repeat, the next one is a
new Event. So a reconcile that keeps failing costs little. An Event that cannot be written is logged
and dropped, since no decision depends on it.

Events are written in the background, one at a time. While keys wait for a reconcile, Events wait,
too, but at most `MAX_WAIT` seconds, so that writing them delays no pod and no status. Events that
still wait when the process ends are lost, as in KubeRay.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn

import msgspec
import structlog

from common import errors
from common.api.meta import ObjectMeta, micro_time
from common.api.opaque import Body
from common.clock import Clock
from common.kube.client import Kube, PatchRequest
from common.kube.resources import EVENT, Resource
from common.observability import tasks
from common.runtime.actions import KubeEvent, warning
from common.runtime.cache import BoundedDict
from common.runtime.key import Key

log = structlog.get_logger()

QUARANTINED: Final = "Quarantined"
"""Event reason: an object is not reconciled, because it depends on an object with an unreadable
state.
"""
NAME_LIMIT: Final = 253
NOTE_LIMIT: Final = 1024
"""Maximum bytes of a note that the API server accepts. A longer note is cut off."""
QUIET_SECONDS: Final = 360.0
"""Seconds without a repeat after which a series of Events ends.

The count of a series is also written at most once in this time."""
REMEMBERED: Final = 4096
MAX_WAIT: Final = 5.0
"""Maximum seconds for which an Event waits while keys wait for a reconcile."""
CHECK_SECONDS: Final = 0.05
MAX_QUEUED_EVENTS: Final = 16_384
"""Maximum number of waiting Events. If there are more, a reconcile writes its Event itself."""


class EventSeries(msgspec.Struct, kw_only=True):
    """A written Event that may be repeated. Times are in seconds of the monotonic clock."""

    name: str
    count: int
    seen: float
    written_until: float
    """Time of the monotonic clock from which the next repeat may be written.

    The first repeat is written at once.
    """


EventWrite = Callable[[], Awaitable[object]]
"""Function that writes an Event to the API server."""


async def _send(request: EventWrite, event: KubeEvent) -> None:
    """Write an Event; if the API server refuses it or does not answer, only log that."""
    try:
        await request()
    except (errors.OwnershipLost, errors.NamespaceTerminating) as problem:
        log.debug("event not written", reason=event.reason, error=str(problem))
    except errors.RaybusError as problem:
        log.warning("event lost", reason=event.reason, note=event.note, error=str(problem))


class EventRecorder:
    """Writes the Events of one controller about objects of one kind."""

    def __init__(
        self, kube: Kube, regarding: Resource, *, controller: str, instance: str, clock: Clock
    ) -> None:
        self._kube = kube
        self.regarding = regarding
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._recorded = BoundedDict[tuple[str, KubeEvent], EventSeries](max_entries=REMEMBERED)
        self._waiting: deque[tuple[EventWrite, KubeEvent, float]] = deque()
        """Waiting writes, each with its Event and the event loop's time when it was added."""
        self._arrived: asyncio.Event | None = None
        """Set when a write is added; None while `run` is not running."""

    async def run(self, waiting_keys: Callable[[], int]) -> NoReturn:
        """Write Events until cancelled.

        `waiting_keys` returns the number of keys that wait for a reconcile.
        """
        loop, self._arrived = asyncio.get_running_loop(), asyncio.Event()
        try:
            while True:
                async with tasks.survive_stray_cancellation("writer of Events"):
                    while not self._waiting:
                        self._arrived.clear()
                        await self._arrived.wait()
                    request, event, since = self._waiting[0]
                    while waiting_keys() and loop.time() < since + MAX_WAIT:  # noqa: ASYNC110
                        await asyncio.sleep(CHECK_SECONDS)
                    self._waiting.popleft()
                    try:
                        await _send(request, event)
                    except Exception as problem:  # a lost Event must not stop the process
                        log.exception("event lost: internal error", error=repr(problem))
        finally:
            self._arrived = None

    async def record(self, about: ObjectMeta, event: KubeEvent, *, count: int = 1) -> None:
        """Queue an Event about an object; what the Event reports has just happened `count` times.

        The Event is written at once if `run` is not running, or if too many Events wait. A repeat
        that is only counted is not queued.
        """
        note = event.note.encode()[:NOTE_LIMIT].decode(errors="ignore")
        # Cut the note first, so that neither the queue nor `_recorded` keeps more than is written.
        event = msgspec.structs.replace(event, note=note)
        if (request := self._build_write(about, event, count)) is None:
            return
        if self._arrived is None or len(self._waiting) >= MAX_QUEUED_EVENTS:
            await _send(request, event)
            return
        self._waiting.append((request, event, asyncio.get_running_loop().time()))
        self._arrived.set()

    def _build_write(self, about: ObjectMeta, event: KubeEvent, count: int) -> EventWrite | None:
        """Return the function that writes an Event; None if the Event is only counted for now."""
        key, seen = (about.uid, event), self._clock.monotonic()
        series = self._recorded.get(key)
        if series is None or seen - series.seen > QUIET_SECONDS:
            body = self._build_body(about, event, count)
            until = seen + QUIET_SECONDS if count > 1 else seen
            self._recorded[key] = EventSeries(
                name=body["metadata"]["name"], count=count, seen=seen, written_until=until
            )
            return partial(self._kube.create, EVENT, about.namespace, body)
        series.count, series.seen = series.count + count, seen
        if seen < series.written_until:
            return None
        series.written_until = seen + QUIET_SECONDS
        repeated = PatchRequest(body={"series": self._build_series(series.count)})
        return partial(self._kube.patch, EVENT, about.namespace, series.name, repeated)

    async def report_quarantine(self, key: Key, about: ObjectMeta, reason: str) -> None:
        """Queue an Event which says that a root object waits for an object in quarantine."""
        kind = self.regarding.kind
        note = f"{reason}. {kind} {key} is not reconciled until that object is changed or deleted"
        await self.record(about, warning(QUARANTINED, "Reconcile", note))

    def _build_series(self, count: int) -> Body:
        return {"count": count, "lastObservedTime": micro_time(self._clock.now())}

    def _build_body(self, about: ObjectMeta, event: KubeEvent, count: int) -> Body:
        now = self._clock.now()
        suffix = f".{int(now.timestamp() * 1e9) ^ (hash((about.uid, event)) & 0xFFFF):x}"
        # Cut the object's name so that the Event's name is valid.
        name = about.name[: NAME_LIMIT - len(suffix)].rstrip("-.") + suffix
        body: Body = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": micro_time(now),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": self.regarding.api_version,
                "kind": self.regarding.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
                "resourceVersion": about.resource_version,
            },
        }
        return body | {"series": self._build_series(count)} if count > 1 else body
