"""Build the parts of traffic-manager and run them."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from common.api.ray_service import RayService
from common.bus.subjects import TreeKind
from common.clock import Clock
from common.kube.client import Kube, KubeClient
from common.kube.resources import RAY_SERVICE
from common.ray import dashboard as dashboards
from common.ray.cluster_dashboards import MIN_WORKERS
from common.ray.config_writer import ConfigWriter
from common.ray.dashboard import Dashboard
from common.ray.owner import keys_of
from common.runtime import replica
from common.runtime.background import Background
from common.runtime.cache import Cache
from common.runtime.controller import Controller
from common.runtime.events import EventRecorder
from common.runtime.executor import Executor
from common.runtime.key import Watched
from common.runtime.reconciler import Reconciler
from common.runtime.replica import ReconcilerParts
from common.runtime.writer import Writer
from common.settings import Settings
from common.upgrade import outbound as outbounds
from common.upgrade.outbound import NoOutbound, Outbound
from common.upgrade.sources import KINDS, Sources
from common.version import OPERATOR_VERSION
from traffic_manager.execute import Execution
from traffic_manager.observe import Observer
from traffic_manager.observed import Observed
from traffic_manager.plan import make_guard_plan, make_plan

CONTROLLER: Final = "traffic"
EVENT_SOURCE: Final = "raybus.io/traffic-manager"


def assemble(
    kube: Kube,
    dashboard: Dashboard,
    *,
    clock: Clock,
    instance: str,
    outbound: Outbound | None = None,
) -> ReconcilerParts:
    """Build the reconciler on the given clients.

    Without `outbound`, gates send no requests to web servers.
    """
    cache, background = Cache(), Background()
    sources = Sources(
        kube, dashboard, cache, clock, background=background, outbound=outbound or NoOutbound()
    )
    events = EventRecorder(
        kube, RAY_SERVICE, controller=EVENT_SOURCE, instance=instance, clock=clock
    )
    observer = Observer(sources)
    executor = Executor[Observed](
        events,
        clock=clock,
        writer_of=lambda observed: Writer(
            kube, cache, KINDS, resource=RAY_SERVICE, root=observed.service
        ),
        handlers=Execution(
            ConfigWriter(sources.serve, events), reads=observer, events=events
        ).handlers,
    )
    watched = Watched(kinds=KINDS, root=RayService, keys_of=partial(keys_of, cache))
    return ReconcilerParts(
        controller=Controller(
            CONTROLLER,
            watched,
            cache=cache,
            clock=clock,
            forget=(sources.forget, observer.forget),
        ),
        reconciler=Reconciler(observer.observe, make_plan, executor.execute),
        guard=Reconciler(observer.observe_directly, make_guard_plan, executor.execute),
        cache=cache,
        events=events,
        background=background,
        tree=TreeKind.SERVICE,
        least_workers=MIN_WORKERS,
    )


async def main(settings: Settings) -> None:
    """Run traffic-manager until cancelled."""

    @asynccontextmanager
    async def assembled(kube: KubeClient, clock: Clock) -> AsyncGenerator[ReconcilerParts]:
        async with (
            dashboards.reached(kube, settings) as dashboard,
            outbounds.reached(settings) as outbound,
        ):
            yield assemble(
                kube, dashboard, clock=clock, instance=socket.gethostname(), outbound=outbound
            )

    await replica.run(settings, assembled, version=OPERATOR_VERSION)
