"""One replica of a reconciler: NATS, its share of the partitions, workers, health.

The replica is ready when NATS is connected, its Lease is valid, and the state of all its partitions
is complete. It may have no partitions if other replicas hold all. If NATS or the API server is
missing, the replica waits instead of crashing. At its end it hands over its partitions before it
closes connections.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from secrets import token_hex
from typing import Final

import msgspec

from common.bus.nats import Bus
from common.bus.state_feed import StateFeed
from common.bus.subjects import TreeKind
from common.clock import Clock, ServerClock, Silence, SystemClock
from common.kube import rest_config
from common.kube.client import KubeClient
from common.kube.installation import Installation
from common.observability import health
from common.runtime import ownership
from common.runtime.background import Background
from common.runtime.cache import Cache
from common.runtime.controller import Controller, Reconcile
from common.runtime.events import EventRecorder
from common.runtime.fence import Fence
from common.runtime.membership import Hints, Membership, PartitionFeeds
from common.runtime.replica_leases import ReplicaLeases
from common.settings import Settings, identity_of

BUS_TIMEOUT: Final = 5.0
"""Seconds without NATS after which a replica leaves its partitions to connected replicas."""


class ReconcilerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a reconciler that a service provides."""

    controller: Controller
    reconciler: Reconcile
    guard: Reconcile | None = None
    """Function that reconciles urgent cases from the API server alone while NATS is silent."""
    cache: Cache
    events: EventRecorder
    other_events: tuple[EventRecorder, ...] = ()
    """Recorders of Events about root objects of kinds other than the main one."""
    background: Background | None = None
    """Runs reads that no reconcile waits for, if the service has any."""
    tree: TreeKind | None = None
    """Kind of the trees (root objects with their children) whose messages the reconciler reads.

    None for all kinds. See `common.bus.subjects.TreeKind`.
    """
    least_workers: int = 1
    """Minimum number of workers; more than 1 if reconciles may wait seconds for silent hosts."""

    async def run(self, *, workers: int) -> None:
        """Reconcile, and write Events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for events in (self.events, *self.other_events):
                group.create_task(events.run(self.controller.queue.__len__))
            if self.background is not None:
                group.create_task(self.background.run())
            await self.controller.run(
                self.reconciler, workers=max(workers, self.least_workers), guard=self.guard
            )


Assemble = Callable[[KubeClient, Clock], AbstractAsyncContextManager[ReconcilerParts]]
"""Function that returns a context manager, which provides the parts of a reconciler."""


async def run(
    settings: Settings, assemble: Assemble, *, version: str, bus: Bus | None = None
) -> None:
    """Run one replica of a reconciler until cancelled.

    `assemble` creates the reconciler. A service that publishes messages itself passes its `bus`.
    """
    config = await rest_config.load(kubeconfig=settings.kubeconfig)
    # Requests for Leases have their own client: reconciles must not delay renewals, and the fence
    # must not stop them.
    kube, own = (
        KubeClient(config, user_agent=f"raybus-{settings.service}/{version}") for _ in range(2)
    )
    try:
        clock, fence, bus = ServerClock(), Fence(), bus or Bus(settings)
        # Learn the date only from requests for Leases, so that no tenant can forge it.
        own.learn_date = clock.learn
        kube.may_write = fence.check
        bus.guard(fence.check)
        replica = _Replica(settings, bus, own, fence)
        async with asyncio.TaskGroup() as group:
            group.create_task(
                health.serve(
                    settings.http_port, ready=replica.problem, port_file=settings.http_port_file
                )
            )
            group.create_task(bus.run())
            async with assemble(kube, clock) as app:
                await replica.join(app)
    finally:
        await own.close()
        await kube.close()


class _Replica:
    def __init__(self, settings: Settings, bus: Bus, kube: KubeClient, fence: Fence) -> None:
        self._settings = settings
        self._bus = bus
        self._kube = kube
        self._fence = fence
        self._app: ReconcilerParts | None = None
        self._feed: StateFeed | None = None
        self._membership: Membership | None = None
        self._bus_silence = Silence(longest_gap=ownership.RENEW_SECONDS)

    async def join(self, app: ReconcilerParts) -> None:
        self._app, service, namespace = app, self._settings.service, self._settings.namespace
        hints = Hints(self._bus, service=service)
        feed = self._feed = StateFeed(
            self._bus,
            reader=service,
            tree=app.tree,
            installation=await Installation(self._kube, namespace).read_identity(),
            kinds=frozenset(app.controller.informer.watched.kinds),
        )
        identity, session = identity_of(self._settings), token_hex(8)
        leases = ReplicaLeases(
            self._kube,
            SystemClock(),
            namespace=namespace,
            service=service,
            identity=identity,
            session=session,
        )
        await self._bus.session()  # a replica that does not reach NATS must not acquire partitions
        async with asyncio.TaskGroup() as group:
            runs = (hints.run(), app.run(workers=self._settings.workers), feed.check_forms())
            tasks = [group.create_task(run) for run in runs]
            feeds = PartitionFeeds(app.controller, feed, group)
            self._membership = membership = Membership(
                leases, feeds, hints, fence=self._fence, is_able=self._is_able
            )
            with contextlib.suppress(TimeoutError):
                # Without this, the replica might acquire partitions and release them at once.
                async with asyncio.timeout(BUS_TIMEOUT):
                    await feed.forms_checked.wait()
            try:
                await membership.run()
            finally:
                await membership.hand_over_all()
                for task in tasks:
                    task.cancel()

    def _is_able(self) -> bool:
        """Return whether this replica can hold partitions.

        This requires that it reaches NATS and can read the format of the watcher's messages.
        """
        if self._bus.problem is None:
            self._bus_silence.end()
        is_readable = self._feed is None or self._feed.unreadable is None
        return is_readable and self._bus_silence.seconds() < BUS_TIMEOUT

    def problem(self) -> str | None:
        """Return why this replica is not ready; None if it is."""
        for part in (self._bus, self._feed, self._membership):
            if part is not None and part.problem is not None:
                return part.problem
        if self._app is None:
            return "the API server does not answer yet"
        if self._membership is None:
            return "the Leases of the replicas are not yet read"
        loading, held = (
            self._app.controller.informer.loading,
            len(self._app.controller.informer.followed),
        )
        return (
            f"the state of {loading} of our {held} partitions is still loading" if loading else None
        )
