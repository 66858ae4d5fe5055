"""Many RayServices at once: both controllers with their queues and workers, in real time on loopback or in virtual time.

A RayService with a name that starts with `dead` has heads with dashboards and proxies that take connections and never answer.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httpx
import msgspec

from common import errors
from common.api.opaque import Body, Json
from common.bus.feed import PartitionListener
from common.clock import Clock, SystemClock
from common.kube.resources import RAY_SERVICE
from common.ray.dashboard import (
    DIRECT_SECONDS,
    METRICS,
    PROXY_HEALTH,
    Dashboard,
    DirectDashboard,
    Target,
)
from common.runtime.replica import ReconcilerParts
from service_reconciler import wiring
from service_reconciler.settings import Config
from support.builders.messages import a_state, a_tombstone
from support.builders.ray_service import NAMESPACE, a_ray_service
from support.fakes.clusters import FakeClusters
from support.fakes.events import FakeEvents
from support.fakes.gateway import FakeGatewayController
from support.fakes.kube import FakeKube
from support.fakes.serve import FakeServe, answering, http_app
from support.servers.loopback import ToLoopback, served
from support.waiting import eventually
from traffic_manager import wiring as traffic

DEAD: Final = "dead"
TICK: Final = 0.1


class Environment:
    """RayServices next to each other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.kube = FakeKube(now=clock.now)
        self.serve = FakeServe(clock)
        self.ray_clusters = FakeClusters(self.kube, self.serve, clock)
        self.ray_clusters.start_seconds = 0.0
        self.gateway = FakeGatewayController(self.kube, clock, seconds=0.1)
        self.apps: list[ReconcilerParts] = []
        self._listeners: list[PartitionListener] = []
        self.kube.on_change.append(self._changed)

    def connect(self, dashboard: Dashboard) -> None:
        """Connect the controllers; they reach all dashboards through this dashboard."""
        self.apps = [
            wiring.assemble(
                self.kube,
                dashboard,
                Config(),
                clock=self._clock,
                instance="test",
                bus=FakeEvents(self._clock),
            ),
            traffic.assemble(self.kube, dashboard, clock=self._clock, instance="test"),
        ]
        self._listeners = [app.controller.informer.hold(0) for app in self.apps]
        for listener in self._listeners:
            listener.synced(0)

    def apply(self, name: str, **fields: Any) -> None:
        """Apply a RayService; keywords are those of the builder."""
        body = a_ray_service(name=name, **fields)
        old = self.kube.objects.get((RAY_SERVICE.kind, NAMESPACE, name))
        self.kube.put(RAY_SERVICE, body if old is None else {**old, "spec": body["spec"]})

    def status(self, name: str) -> Json:
        return self.kube.objects[(RAY_SERVICE.kind, NAMESPACE, name)].get("status", {})

    def active(self, name: str) -> str:
        """Return the cluster that serves, once no upgrade is in progress."""
        status = self.status(name)
        is_whole = status.get("serviceStatus") == "Running" and not status[
            "pendingServiceStatus"
        ].get("rayClusterName")
        return status["activeServiceStatus"].get("rayClusterName", "") if is_whole else ""

    async def upgrade(self, name: str, **fields: Any) -> float:
        """Change a RayService; return the seconds until a new cluster serves."""
        before = self.active(name)
        began = self._clock.monotonic()
        self.apply(name, **fields)
        await eventually(
            lambda: self.active(name) not in {"", before}, within=30, what=f"an upgrade of {name}"
        )
        return self._clock.monotonic() - began

    @property
    def waiting(self) -> int:
        """Number of callers that wait for dead heads now."""
        return sum(head.waiting for head in self.serve.heads.values())

    @property
    def silenced(self) -> int:
        """Number of dead heads that have made a caller wait."""
        return sum(head.kept_waiting > 0 for head in self.serve.heads.values())

    async def live(self) -> None:
        """Run everything until cancelled."""
        while True:
            self.ray_clusters.move_on()
            self.ray_clusters.endpoints_follow()
            self.gateway.move_on()
            await asyncio.sleep(TICK)

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        meta = body["metadata"]
        if kind == "RayCluster" and meta["name"].startswith(DEAD):
            self.serve.head(f"{meta['name']}-head-svc").behaviour = "silent"
        message = (a_tombstone if is_gone else a_state)(kind, msgspec.json.encode(body))
        for listener in self._listeners:
            listener.take(message, trace="")


class HangingServe:
    """The heads in memory; those that are silent let callers wait as long as a real call would."""

    def __init__(self, serve: FakeServe) -> None:
        self._serve = serve

    async def request(self, target: Target, path: str, **options: Any) -> bytes:
        service = f"{target.name}-svc" if target.ip else target.name
        if path != METRICS:
            await self._answering(service)
        if path == PROXY_HEALTH and self._serve.head(service).behaviour == "silent":
            raise errors.Unavailable(f"{target.name} does not answer within {DIRECT_SECONDS:g} s")
        return await self._serve.request(target, path, **options)

    async def _answering(self, service: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(DIRECT_SECONDS):
                await answering(self._serve.head(service))


@asynccontextmanager
async def living(environment: Environment) -> AsyncGenerator[None]:
    """Run both controllers and what is around them for the length of a block."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(environment.live()),
            *(group.create_task(app.run(workers=4)) for app in environment.apps),
        ]
        yield
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def on_loopback() -> AsyncGenerator[Environment]:
    """Live with dashboards over real HTTP, in real time."""
    environment = Environment(SystemClock())
    async with (
        served(http_app(environment.serve)) as port,
        httpx.AsyncClient(transport=ToLoopback(port)) as client,
    ):
        environment.connect(DirectDashboard(domain="cluster.local", client=client))
        async with living(environment):
            yield environment


@asynccontextmanager
async def in_memory(clock: Clock) -> AsyncGenerator[Environment]:
    """Live with dashboards in memory."""
    environment = Environment(clock)
    environment.connect(HangingServe(environment.serve))
    async with living(environment):
        yield environment
