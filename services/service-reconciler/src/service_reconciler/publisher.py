"""Tells outsiders of upgrades over NATS, one event after the other, each acknowledged before the next thing happens.

An event that was acknowledged is not sent again by this process; one that comes again after a restart has the same id. Without a
connection a look waits, as nobody decides then anyway. A server that is there and does not take events is waited for a while,
and must not stop an upgrade: after that they are lost, counted and told, until it takes one.
"""

from collections import OrderedDict
from typing import Final

import structlog

from common import errors, upgrade_events
from common.runtime import trace
from common.runtime.clock import Clock
from common.upgrade_events import Event
from service_reconciler import metrics
from service_reconciler.ports import Bus

log = structlog.get_logger()

GIVEN_UP_AFTER: Final = 30.0
"""Seconds of refusals after which events are given up; streams that a lost volume took along are there again in less."""
FORGOTTEN: Final = 120.0
"""Seconds without a refusal after which patience begins anew."""
REMEMBERED: Final = 16_384
"""Events that are known to be told; an upgrade that is on has a handful that count."""


class Publisher:
    """Publishes upgrade events for one process."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._told: OrderedDict[str, None] = OrderedDict()
        self._refused_since: float | None = None
        self._refused_at = 0.0

    async def publish(self, event: Event) -> str | None:
        """Tell an event unless this process has; return why it is lost, if it is. Raises `Retryable` while it may still go."""
        if event.id in self._told:
            self._told.move_to_end(event.id)
            return None
        wire = upgrade_events.encode(event, trace=trace.current() or None)
        try:
            await self._bus.publish(wire.subject, wire.payload, wire.headers, expected=None, message_id=event.id)
        except errors.NotOurs:
            raise  # it is told by whoever looks after the RayService now
        except errors.Retryable as problem:
            if self._bus.problem is not None or self._is_waited_for():
                raise
            return self._lost(event, problem)
        except errors.Terminal as problem:
            return self._lost(event, problem)
        self._refused_since = None
        self._done(event, "told")
        log.info("upgrade event published", event_id=event.id, kind=event.kind)
        return None

    def _is_waited_for(self) -> bool:
        now = self._clock.monotonic()
        if self._refused_since is None or now - self._refused_at > FORGOTTEN:
            self._refused_since = now
        self._refused_at = now
        return now - self._refused_since < GIVEN_UP_AFTER

    def _lost(self, event: Event, problem: errors.RaybusError) -> str:
        self._done(event, "lost")
        log.error("an upgrade event is lost", event_id=event.id, kind=event.kind, error=str(problem))
        return str(problem)

    def _done(self, event: Event, result: str) -> None:
        metrics.EVENTS.labels(event.kind, result).inc()
        self._told[event.id] = None
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
