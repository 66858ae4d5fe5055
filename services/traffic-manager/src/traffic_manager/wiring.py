"""Puts the service together, once, by constructors."""

import socket
from typing import Final

import msgspec

from common.api.core import EndpointSlice, Service
from common.api.gateway import Gateway, HttpRoute
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.bus.cache import Cache, Object
from common.feature_gates import Gates
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
from traffic_manager.apply import Applier
from traffic_manager.observe import Observer
from traffic_manager.reconcile import Reconciler

CONTROLLER: Final = "traffic"
EVENT_SOURCE: Final = "rayservice-controller"
"""KubeRay's word: who reads these Events need not know which of us wrote them."""
KINDS: Final[dict[str, type[Object]]] = {
    "RayService": RayService,
    "RayCluster": RayCluster,
    "Service": Service,
    "EndpointSlice": EndpointSlice,
    "ControllerRevision": Revision,
    "Gateway": Gateway,
    "HTTPRoute": HttpRoute,
}
LEAST_WORKERS: Final = 32
"""A look may wait seconds for a dashboard that does not answer, and costs nothing meanwhile; few workers would queue."""


class App(msgspec.Struct, frozen=True, kw_only=True):
    """The service without its surroundings."""

    controller: Controller
    reconciler: Reconciler
    cache: Cache

    async def run(self, *, workers: int) -> None:
        """Reconcile until cancelled."""
        await self.controller.run(self.reconciler, workers=max(workers, LEAST_WORKERS))


def assemble(kube: Kube, dashboard: Dashboard, gates: Gates, *, clock: Clock, instance: str) -> App:
    """Put the service together."""
    cache = Cache()
    serve = ServeApi(dashboard, kube, clock)
    revisions = Revisions(kube, cache)
    events = EventRecorder(kube, controller=EVENT_SOURCE, instance=f"traffic-manager-{instance}", clock=clock)
    observer = Observer(cache, kube, serve, revisions, gates=gates, clock=clock)
    applier = Applier(kube, cache, serve, revisions, events=events, reads=observer)
    controller = Controller(CONTROLLER, kinds=KINDS, keys_of=keys_of(cache), cache=cache, clock=clock)
    return App(controller=controller, reconciler=Reconciler(observer, applier), cache=cache)


async def main(settings: Settings) -> None:
    """Run the service until cancelled."""
    kube = await KubeClient.connect(kubeconfig=settings.kubeconfig, user_agent="raybus-traffic-manager")
    direct = DirectDashboard(domain=settings.cluster_domain)
    dashboard = ProxiedDashboard(kube) if settings.use_kubernetes_proxy else direct

    async def assembled() -> App:
        return assemble(kube, dashboard, settings.feature_gates, clock=SystemClock(), instance=socket.gethostname())

    try:
        await replica.run(settings, assembled)
    finally:
        await direct.close()
        await kube.close()
