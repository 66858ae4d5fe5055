"""Puts the service together, once, by constructors."""

import os
import socket
from typing import Final

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry

from common.api.core import EndpointSlice, Pod, Service
from common.api.gateway import Gateway, HttpRoute
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.bus.cache import Cache, Object
from common.kube.client import Kube, KubeClient
from common.kube.events import EventRecorder
from common.ray.dashboard import Dashboard, DirectDashboard, ProxiedDashboard
from common.ray.keys import keys_of
from common.ray.revision import Revision
from common.ray.revisions import Revisions
from common.ray.serve_api import ServeApi
from common.runtime import replica
from common.runtime.clock import Clock, SystemClock
from common.runtime.controller import Controller
from common.runtime.settings import Settings
from service_reconciler import settings as own_settings
from service_reconciler.apply import Applier
from service_reconciler.config import Config
from service_reconciler.metrics import RayServiceCollector
from service_reconciler.observe import Observer
from service_reconciler.reconcile import Reconciler

CONTROLLER: Final = "rayservice"
EVENT_SOURCE: Final = "rayservice-controller"
KINDS: Final[dict[str, type[Object]]] = {
    "RayService": RayService,
    "RayCluster": RayCluster,
    "Pod": Pod,
    "Service": Service,
    "ControllerRevision": Revision,
    "Gateway": Gateway,
    "HTTPRoute": HttpRoute,
    "EndpointSlice": EndpointSlice,
}
LEAST_WORKERS: Final = 32
"""A look may wait seconds for a dashboard that does not answer, and costs nothing meanwhile; few workers would queue."""


class App(msgspec.Struct, frozen=True, kw_only=True):
    """The reconciler without its surroundings."""

    controller: Controller
    reconciler: Reconciler
    cache: Cache

    async def run(self, *, workers: int) -> None:
        """Reconcile until cancelled."""
        await self.controller.run(self.reconciler, workers=max(workers, LEAST_WORKERS))


def assemble(kube: Kube, dashboard: Dashboard, config: Config, *, clock: Clock, instance: str) -> App:
    """Put the reconciler together."""
    cache = Cache()
    serve = ServeApi(dashboard, kube, clock)
    revisions = Revisions(kube, cache)
    events = EventRecorder(kube, controller=EVENT_SOURCE, instance=f"{EVENT_SOURCE}-{instance}", clock=clock)
    observer = Observer(cache, kube, serve, revisions, config=config)
    applier = Applier(kube, cache, serve, revisions, events=events, reads=observer)
    controller = Controller(CONTROLLER, kinds=KINDS, keys_of=keys_of(cache), cache=cache, clock=clock)
    return App(controller=controller, reconciler=Reconciler(observer, applier), cache=cache)


async def main(settings: Settings) -> None:
    """Run the service until cancelled."""
    config = own_settings.config_of(settings, os.environ)
    user_agent = f"raybus-service-reconciler/{config.version}"
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent=user_agent)
    direct = DirectDashboard(domain=settings.cluster_domain)
    dashboard = ProxiedDashboard(kube) if settings.use_kubernetes_proxy else direct

    async def assembled() -> App:
        app = assemble(kube, dashboard, config, clock=SystemClock(), instance=socket.gethostname())
        _export(app, REGISTRY)
        return app

    try:
        await replica.run(settings, assembled)
    finally:
        await direct.close()
        await kube.close()


def _export(app: App, registry: CollectorRegistry) -> None:
    registry.register(RayServiceCollector(app.cache))
