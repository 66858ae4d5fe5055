"""One replica of a reconciler, written once: the connection to NATS, the state of its partitions, its workers, its health.

It holds all partitions, since one replica of each service runs for now (ADR 4). Ready means that NATS is connected and the
state is complete; what is away is waited for, never a reason to crash.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import msgspec

from common.bus.cache import Cache
from common.bus.nats import Bus
from common.bus.sharding import PARTITIONS
from common.bus.state_feed import StateFeed
from common.kube.client import KubeClient
from common.observability import health
from common.runtime.controller import Controller, Reconcile
from common.runtime.settings import Settings


class App(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciler without its surroundings."""

    controller: Controller
    """The shell that is told of changes."""
    reconciler: Reconcile
    cache: Cache
    least_workers: int = 1
    """For looks that may wait seconds for somebody who does not answer, and cost nothing meanwhile."""

    async def run(self, *, workers: int) -> None:
        """Reconcile until cancelled."""
        await self.controller.run(self.reconciler, workers=max(workers, self.least_workers))


Assemble = Callable[[KubeClient], AbstractAsyncContextManager[App]]
"""Puts a reconciler together for the length of a block; may ask the API server first, and wait for it."""


async def run(settings: Settings, assemble: Assemble, *, version: str, bus: Bus | None = None) -> None:
    """Run a reconciler until cancelled; one that says something on the bus itself brings it."""
    user_agent = f"raybus-{settings.service}/{version}"
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent=user_agent)
    try:
        await _run(settings, partial(assemble, kube), bus or Bus(settings))
    finally:
        await kube.close()


async def _run(settings: Settings, assemble: Callable[[], AbstractAsyncContextManager[App]], bus: Bus) -> None:
    app: App | None = None

    def ready() -> str | None:
        if bus.problem is not None:
            return bus.problem
        if app is None:
            return "the API server does not answer yet"
        return "the state of the cluster is still loading" if app.controller.loading else None

    async with asyncio.TaskGroup() as outer:
        outer.create_task(health.serve(settings.http_port, live=lambda: None, ready=ready))
        outer.create_task(bus.run())
        async with assemble() as app, asyncio.TaskGroup() as group:
            feed = StateFeed(bus, reader=settings.service)
            for partition in range(PARTITIONS):
                group.create_task(feed.follow(frozenset({partition}), app.controller.hold(partition)))
            group.create_task(app.run(workers=settings.workers))
