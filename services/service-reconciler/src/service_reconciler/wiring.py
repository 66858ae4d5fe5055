"""Build the parts of service-reconciler and run them."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

from common.api.core import Pod
from common.api.ray_service import RayService
from common.bus.nats import Bus as NatsBus
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
from common.runtime.cache import Cache, Object
from common.runtime.controller import Controller
from common.runtime.event_publisher import EventBus, Published, Publisher
from common.runtime.events import EventRecorder
from common.runtime.executor import Executor
from common.runtime.key import Watched
from common.runtime.quarantine_release import QuarantineRelease
from common.runtime.reconciler import Reconciler
from common.runtime.replica import ReconcilerParts
from common.runtime.writer import Writer
from common.settings import Settings
from common.upgrade import events as upgrade_events
from common.upgrade import outbound as outbounds
from common.upgrade.outbound import NoOutbound, Outbound
from common.upgrade.sources import KINDS as SHARED_KINDS
from common.upgrade.sources import Sources
from common.version import OPERATOR_VERSION
from service_reconciler import metrics
from service_reconciler.execute import Execution
from service_reconciler.observe import Observer
from service_reconciler.observed import Observed
from service_reconciler.plan import FINALIZER, make_plan
from service_reconciler.reasons import EventReason
from service_reconciler.settings import Config, config_of

CONTROLLER: Final = "rayservice"
EVENT_SOURCE: Final = "raybus.io/service-reconciler"
KINDS: Final[dict[str, type[Object]]] = {**SHARED_KINDS, "Pod": Pod}
PUBLISHED: Final = Published(
    family=upgrade_events.FAMILY,
    counter=metrics.EVENTS,
    lost_reason=EventReason.UPGRADE_EVENT_LOST,
    action="Upgrade",
    what="the upgrade's step",
)


def assemble(  # noqa: PLR0913  (this function names every part)
    kube: Kube,
    dashboard: Dashboard,
    config: Config,
    *,
    clock: Clock,
    instance: str,
    bus: EventBus,
    registry: CollectorRegistry | None = None,
    outbound: Outbound | None = None,
) -> ReconcilerParts:
    """Build the reconciler on the given clients; with a `registry`, export its metrics there.

    Without `outbound`, gates send no requests to web servers.
    """
    cache, background = Cache(), Background()
    sources = Sources(
        kube, dashboard, cache, clock, background=background, outbound=outbound or NoOutbound()
    )
    if registry is not None:
        registry.register(metrics.RayServiceCollector(cache, sources.serve.last_reading, clock))
    events = EventRecorder(
        kube, RAY_SERVICE, controller=EVENT_SOURCE, instance=instance, clock=clock
    )
    observer = Observer(sources, config)
    writer = ConfigWriter(sources.serve, events)
    publisher = Publisher(PUBLISHED, bus, clock, events.record)
    executor = Executor[Observed](
        events,
        clock=clock,
        writer_of=lambda observed: Writer(
            kube, cache, KINDS, resource=RAY_SERVICE, root=observed.service
        ),
        handlers=Execution(writer, kube=kube, publisher=publisher, events=events).handlers,
    )
    watched = Watched(kinds=KINDS, root=RayService, keys_of=partial(keys_of, cache))
    return ReconcilerParts(
        controller=Controller(
            CONTROLLER,
            watched,
            cache=cache,
            clock=clock,
            forget=(sources.forget, observer.forget),
            report_quarantine=events.report_quarantine,
            release=QuarantineRelease(kube, events, FINALIZER),
        ),
        reconciler=Reconciler(observer.observe, make_plan, executor.execute),
        cache=cache,
        events=events,
        background=background,
        tree=TreeKind.SERVICE,
        least_workers=MIN_WORKERS,
    )


async def main(settings: Settings) -> None:
    """Run service-reconciler until cancelled."""
    config = config_of(settings.feature_gates, os.environ)
    bus = NatsBus(settings)

    @asynccontextmanager
    async def assembled(kube: KubeClient, clock: Clock) -> AsyncGenerator[ReconcilerParts]:
        async with (
            dashboards.reached(kube, settings) as dashboard,
            outbounds.reached(settings) as outbound,
        ):
            metrics.initialize()
            yield assemble(
                kube,
                dashboard,
                config,
                clock=clock,
                instance=socket.gethostname(),
                bus=bus,
                registry=REGISTRY,
                outbound=outbound,
            )

    await replica.run(settings, assembled, version=OPERATOR_VERSION, bus=bus)
