"""The watcher put together."""

import asyncio
import random
from secrets import token_hex

from common.bus import epoch
from common.bus.nats import Bus
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.installation import Installation
from common.kube.watch import Timing
from common.observability import health
from common.settings import Settings, identity_of
from watcher import watched
from watcher.adapters.bus import NatsStream
from watcher.adapters.lease import Leadership
from watcher.reach import Reach
from watcher.session import Sessions


async def serve(settings: Settings, *, timing: Timing | None = None) -> None:
    """Run the watcher until cancelled."""
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent=f"raybus-{settings.service}")
    bus = Bus(settings)
    installation = Installation(kube, settings.namespace)
    stream = NatsStream(bus, installation, may_write=lambda: leadership.has_valid_lease)
    reach = Reach(stream)
    held_in = settings.lease_namespace or settings.namespace
    leadership = Leadership(kube, SystemClock(), reach, namespace=held_in, me=identity_of(settings))
    sessions = Sessions(
        kube,
        stream,
        watched.targets(settings.watch_namespaces),
        new_epoch=lambda: epoch.new(installation.known, token_hex(8)),
        jitter=random.random,
        timing=timing,
    )

    def ready() -> str | None:
        unwell = bus.problem or reach.problem
        return unwell if leadership.standing_by else leadership.problem or unwell or sessions.problem

    def note() -> str | None:
        return f"standing by: {leadership.standing_by}" if leadership.standing_by else None

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(health.serve(settings.http_port, live=lambda: sessions.stuck, ready=ready, note=note))
            running = [group.create_task(bus.run()), group.create_task(reach.run())]
            try:
                await _lead(leadership, sessions)
            finally:
                for task in running:
                    task.cancel()
    finally:
        await kube.close()


async def _lead(leadership: Leadership, sessions: Sessions) -> None:
    """Publish while the Lease is ours, wait while it is not."""
    while True:
        async with leadership.held(), asyncio.TaskGroup() as group:
            working = group.create_task(sessions.run())
            why = await leadership.keep()
            working.cancel()
        leadership.lost(why)
