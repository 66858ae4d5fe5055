"""One replica of a reconciler, written once: the connection to NATS, the state of its partitions, its workers, its health.

It holds all partitions, since one replica of each service runs for now (ADR 4). Ready means that NATS is connected and the
state is complete; what is away is waited for, never a reason to crash.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from common.bus.nats import Bus
from common.bus.sharding import PARTITIONS
from common.bus.state_feed import StateFeed
from common.observability import health
from common.runtime.controller import Controller
from common.runtime.settings import Settings

ALL_PARTITIONS: Final = frozenset(range(PARTITIONS))


class App(Protocol):
    """A reconciler without its surroundings."""

    @property
    def controller(self) -> Controller:
        """Return the shell that is told of changes."""
        ...

    async def run(self, *, workers: int) -> None:
        """Reconcile until cancelled."""
        ...


async def run(settings: Settings, assemble: Callable[[], Awaitable[App]]) -> None:
    """Run a reconciler until cancelled; `assemble` may ask the API server first, and wait for it."""
    bus = Bus(settings)
    app: App | None = None

    def ready() -> str | None:
        if bus.problem is not None:
            return bus.problem
        if app is None:
            return "the API server does not answer yet"
        return None if app.controller.is_synced else "the state of the cluster is still loading"

    async with asyncio.TaskGroup() as group:
        group.create_task(health.serve(settings.http_port, live=lambda: None, ready=ready))
        group.create_task(bus.run())
        app = await assemble()
        group.create_task(StateFeed(bus, reader=settings.service).follow(ALL_PARTITIONS, app.controller))
        group.create_task(app.run(workers=settings.workers))
