"""Consumes upgrade events as an external consumer, and shows on the board why none arrive.

An unreachable bus is retried again and again: the page shows what the API server shows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from common import errors
from common.bus import subjects
from common.bus.consumer import from_sequence
from raybus_cli.access import problems
from raybus_cli.dashboard.board import EventFeed
from raybus_cli.dashboard.history import EventLog
from raybus_cli.events import run
from raybus_cli.events.run import Read, Way

AGAIN: Final = 10.0
"""Seconds until an unreachable bus is retried."""
EVERY: Final = "*"

Through = Callable[[Read], Awaitable[None]]
"""Connects to NATS, and reads there."""


class Audience(Protocol):
    """What is shown follows the events."""

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Note whether events arrive."""
        ...

    def request_read(self, key: str) -> None:
        """Note that a RayService has changed."""
        ...


class Listener:
    """Consumes events until it is cancelled."""

    def __init__(self, through: Through, namespace: str | None, audience: Audience, events: EventLog) -> None:
        self._through = through
        self._subject = subjects.ALL_EVENTS if namespace is None else subjects.upgrade_event(namespace, EVERY, EVERY)
        self._audience = audience
        self._events = events

    async def listen(self) -> None:
        """Hand events on to the event log; show an error and retry."""
        while True:
            try:
                await self._through(self._read)
            except errors.RaybusError as problem:
                self._miss(problem)
            except BaseExceptionGroup as met:
                problem = problems.first(met)
                if not isinstance(problem, errors.RaybusError):
                    raise
                self._miss(problem)
            await asyncio.sleep(AGAIN)

    async def _read(self, way: Way) -> None:
        async with run.reached(way) as reach:
            await reach.read(
                self._subject,
                from_sequence(1),
                self._events,
                is_patient=True,
                report=lambda line: self._audience.set_feed(EventFeed.AWAY, line),
            )

    def _miss(self, problem: BaseException) -> None:
        self._audience.set_feed(EventFeed.AWAY, " ".join(str(problem).split()))
