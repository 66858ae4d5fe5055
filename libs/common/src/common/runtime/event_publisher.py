"""Publishes events over NATS. Each publish waits for the acknowledgement of NATS.

A process does not publish an acknowledged event again. After a restart, an event may be published
again with the same ID. Without a connection to NATS the reconcile is retried. If NATS is connected
but refuses events, reconciles must go on: after `LOST_AFTER` seconds events are dropped, counted
and reported, until NATS accepts events again.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
import structlog
from prometheus_client import Counter

from common import errors
from common.api.meta import ObjectMeta
from common.bus import cloud_events
from common.bus.cloud_events import EventFamily
from common.clock import Clock
from common.observability import tracing
from common.runtime.actions import KubeEvent, Publish, warning
from common.runtime.cache import BoundedDict
from common.runtime.writer import Writer

log = structlog.get_logger()

LOST_AFTER: Final = 30.0
"""Seconds of refusals by NATS after which events are dropped.

A stream whose volume was lost is created again in less time."""
FORGOTTEN: Final = 120.0
"""Seconds without a refusal after which the next refusal counts as the first one."""
REMEMBERED: Final = 16_384
"""Maximum IDs of published events that are remembered; an object needs only a few."""


class EventBus(Protocol):
    """The connection to the NATS stream of events."""

    @property
    def problem(self) -> str | None:
        """Why there is no connection to NATS; None while there is one."""
        ...

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        *,
        expected: int | None,
        message_id: str,
    ) -> Awaitable[object]:
        """Store a message in the stream, and return when it is stored.

        A message with an ID that was sent less than two minutes ago is not stored again. For
        `expected` see `common.bus.nats.Bus.publish`.
        """
        ...


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The family of events that a service publishes, and how it reports a lost event."""

    family: EventFamily[Any]
    counter: Counter
    """Counts events by kind and result, which is `sent` or `lost`."""
    lost_reason: str
    """Reason of the Kubernetes Event that reports a lost event."""
    action: str
    """Action of the Kubernetes Event that reports a lost event."""
    what: str
    """Phrase for the lost event in the Kubernetes Event, such as `the upgrade's step`."""


class Publisher:
    """Publishes each event of this process once."""

    def __init__(
        self,
        published: Published,
        bus: EventBus,
        clock: Clock,
        report: Callable[[ObjectMeta, KubeEvent], Awaitable[None]],
    ) -> None:
        self._events = published
        self._bus = bus
        self._clock = clock
        self._report = report
        self._published = BoundedDict[str, None](max_entries=REMEMBERED)
        self._refused_since: float | None = None
        self._refused_at = 0.0

    async def publish(self, action: Publish, _observed: object, writer: Writer) -> bool:
        """Publish an event, unless this process has already published it.

        A dropped event is reported in a Kubernetes Event. Always returns False, since no Kubernetes
        object is changed. Raises `Retryable` if publishing should be tried again.
        """
        meta, kind, event_id = writer.root.metadata, action.data.kind, action.id
        if event_id in self._published:
            self._published[event_id] = None
            return False
        event = cloud_events.Event(
            namespace=meta.namespace, name=meta.name, id=event_id, time=action.at, data=action.data
        )
        wire = self._events.family.encode(event, trace=tracing.CURRENT.get() or None)
        lost: errors.RaybusError | None = None
        try:
            await self._bus.publish(
                wire.subject, wire.payload, wire.headers, expected=None, message_id=event_id
            )
        except errors.OwnershipLost:
            raise  # The replica that now holds the partition publishes the event.
        except (errors.Retryable, errors.Terminal) as problem:
            is_retryable = isinstance(problem, errors.Retryable)
            if is_retryable and (self._bus.problem is not None or self._is_waited_for()):
                raise
            lost = problem
        else:
            self._refused_since = None
        self._events.counter.labels(kind, "sent" if lost is None else "lost").inc()
        self._published[event_id] = None
        if lost is None:
            log.info("event published", event_id=event_id, kind=kind)
            return False
        log.error("event lost", event_id=event_id, kind=kind, error=str(lost))
        note = f"External consumers do not receive {self._events.what} {kind}: {lost}"
        await self._report(meta, warning(self._events.lost_reason, self._events.action, note))
        return False

    def _is_waited_for(self) -> bool:
        """Return whether to retry a refused event: False after `LOST_AFTER` seconds of refusals."""
        now = self._clock.monotonic()
        if self._refused_since is None or now - self._refused_at > FORGOTTEN:
            self._refused_since = now
        self._refused_at = now
        return now - self._refused_since < LOST_AFTER
