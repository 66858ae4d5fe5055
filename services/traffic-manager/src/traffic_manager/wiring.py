"""Puts the service together, once, by constructors."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Final

import msgspec

from common.api.ray_service import RayService
from common.bus.cache import Cache, Object
from common.bus.nats import Bus
from common.bus.sharding import PARTITIONS
from common.bus.state_feed import StateFeed
from common.kube.client import Kube, KubeClient
from common.kube.events import EventRecorder
from common.observability import health
from common.runtime.clock import Clock, SystemClock
from common.runtime.controller import Controller
from common.runtime.key import Key
from common.runtime.settings import Settings
from traffic_manager.reconcile import Reconciler

CONTROLLER: Final = "traffic"
EVENT_SOURCE: Final = "traffic-manager"
KINDS: Final[dict[str, type[Object]]] = {"RayService": RayService}
ALL_PARTITIONS: Final = frozenset(range(PARTITIONS))


class App(msgspec.Struct, frozen=True, kw_only=True):
    """The service without its surroundings."""

    controller: Controller
    reconciler: Reconciler
    cache: Cache


def assemble(kube: Kube, *, clock: Clock, instance: str) -> App:
    """Put the service together."""
    cache = Cache()
    events = EventRecorder(kube, controller=EVENT_SOURCE, instance=f"{EVENT_SOURCE}-{instance}", clock=clock)
    controller = Controller(CONTROLLER, kinds=KINDS, keys_of=_keys_of, cache=cache, clock=clock)
    return App(controller=controller, reconciler=Reconciler(cache, events), cache=cache)


async def main(settings: Settings) -> None:
    """Run the service until cancelled."""
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent="raybus-traffic-manager")
    bus = Bus(settings)
    app = assemble(kube, clock=SystemClock(), instance=socket.gethostname())
    feed = StateFeed(bus, reader=settings.service)

    def ready() -> str | None:
        if bus.problem is not None:
            return bus.problem
        return None if app.controller.is_synced else "the state of the cluster is still loading"

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(bus.run())
            group.create_task(feed.follow(ALL_PARTITIONS, app.controller))
            group.create_task(app.controller.run(app.reconciler, workers=settings.workers))
            group.create_task(health.serve(settings.http_port, live=lambda: None, ready=ready))
    finally:
        await kube.close()


def _keys_of(obj: Object) -> Iterator[Key]:
    yield Key(obj.metadata.namespace, obj.metadata.name)
