"""Notifications among the replicas of one service that their Leases have changed: they save time, and nothing depends on them."""

import asyncio
import contextlib

import structlog

from common import errors
from common.bus import subjects
from common.bus.nats import Bus

log = structlog.get_logger()

RETRY_SECONDS = 1.0


class Hints:
    """Sends and receives hints as long as there is a connection."""

    def __init__(self, bus: Bus, *, service: str) -> None:
        self._bus = bus
        self._subject = subjects.members(service)
        self._hinted = asyncio.Event()

    async def run(self) -> None:
        """Listen until cancelled, on one connection after the other."""
        while True:
            session = await self._bus.session()
            try:
                await session.listen(self._subject, self._receive)
            except errors.Retryable as problem:
                log.warning("hints cannot be received", error=str(problem))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._hinted.set()  # what was sent in between is lost
                await session.until_lost()

    async def send(self) -> None:
        """Make all others list the Leases now."""
        with contextlib.suppress(errors.RaybusError):
            await self._bus.current.publish(self._subject)

    async def wait(self, seconds: float) -> None:
        """Return when a hint comes, at the latest after some seconds; one that came before counts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._hinted.wait()
        self._hinted.clear()

    async def _receive(self, _message: object) -> None:
        self._hinted.set()
