"""Publishes upgrade events over NATS, one after the other, each acknowledged before the next.

This process does not publish an acknowledged event again. After a restart an event may be published
again with the same id. Without a connection the reconcile waits, as no replica decides then anyway.
A server that is connected but refuses events must not stop an upgrade: after `LOST_AFTER` seconds
events are dropped, counted and reported, until the server accepts events again.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from common import errors
from common.api.meta import ObjectMeta
from common.clock import Clock
from common.observability import tracing
from common.runtime.actions import KubeEvent, warning
from common.runtime.cache import BoundedDict
from common.runtime.writer import Writer
from common.upgrade import events as upgrade_events
from service_reconciler import metrics
from service_reconciler.actions import Publish
from service_reconciler.observed import Observed
from service_reconciler.reasons import EventReason

log = structlog.get_logger()

LOST_AFTER: Final = 30.0
"""Seconds of refusals after which events are dropped.

A stream whose volume was lost is created again in less time."""
FORGOTTEN: Final = 120.0
"""Seconds without a refusal after which the time before events are dropped starts over."""
REMEMBERED: Final = 16_384
"""Ids of published events to remember; an upgrade in progress needs a handful of them."""


class Bus(Protocol):
    """The NATS connection to the stream of upgrade events."""

    @property
    def problem(self) -> str | None:
        """Why there is no connection; None while there is one."""
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
        """Store a message, and return when it is stored.

        A message id that is sent again within two minutes is stored only once.
        """
        ...


class Publisher:
    """Publishes the upgrade events of this process, each once."""

    def __init__(
        self, bus: Bus, clock: Clock, report: Callable[[ObjectMeta, KubeEvent], Awaitable[None]]
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._report = report
        self._published = BoundedDict[str, None](max_entries=REMEMBERED)
        self._refused_since: float | None = None
        self._refused_at = 0.0

    async def publish(self, action: Publish, observed: Observed, _writer: Writer) -> bool:
        """Publish an event unless this process has published it; report it if it is dropped.

        Raises `Retryable` while the event may still be published.
        """
        meta = observed.service.metadata
        event = upgrade_events.Event(
            namespace=meta.namespace, name=meta.name, id=action.id, time=action.at, data=action.data
        )
        if event.id in self._published:
            self._published[event.id] = None
            return False
        wire = upgrade_events.encode(event, trace=tracing.CURRENT.get() or None)
        lost: errors.RaybusError | None = None
        try:
            await self._bus.publish(
                wire.subject, wire.payload, wire.headers, expected=None, message_id=event.id
            )
        except errors.OwnershipLost:
            raise  # The new owner of the RayService publishes the event.
        except (errors.Retryable, errors.Terminal) as problem:
            is_retryable = isinstance(problem, errors.Retryable)
            if is_retryable and (self._bus.problem is not None or self._is_waited_for()):
                raise
            lost = problem
        else:
            self._refused_since = None
        metrics.EVENTS.labels(event.data.kind, "sent" if lost is None else "lost").inc()
        self._published[event.id] = None
        if lost is None:
            log.info("upgrade event published", event_id=event.id, kind=event.data.kind)
            return False
        log.error(
            "an upgrade event is lost", event_id=event.id, kind=event.data.kind, error=str(lost)
        )
        note = f"External consumers do not receive the upgrade's step {event.data.kind}: {lost}"
        await self._report(meta, warning(EventReason.UPGRADE_EVENT_LOST, "Upgrade", note))
        return False

    def _is_waited_for(self) -> bool:
        """Return whether to wait for a connected server that refuses events."""
        now = self._clock.monotonic()
        if self._refused_since is None or now - self._refused_at > FORGOTTEN:
            self._refused_since = now
        self._refused_at = now
        return now - self._refused_since < LOST_AFTER
