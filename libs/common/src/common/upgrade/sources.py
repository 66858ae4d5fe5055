"""Where service-reconciler and traffic-manager read the state of RayServices.

The sources are the cache that NATS fills, the API server, Ray dashboards and gates' servers.
"""

from typing import Final

from common.api.core import EndpointSlice, Service
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.clock import Clock
from common.kube.client import Kube
from common.ray.dashboard import Dashboard
from common.ray.revision import Revision
from common.ray.serve_api import ServeApi
from common.runtime.background import Background
from common.runtime.cache import Cache, Object, Objects
from common.runtime.lookup import Lookup
from common.upgrade.inquiries import Inquiries
from common.upgrade.outbound import Outbound
from common.upgrade.warm_up import WarmUps
from common.upgrade.windows import Windows

KINDS: Final[dict[str, type[Object]]] = {
    "RayService": RayService,
    "RayCluster": RayCluster,
    "Service": Service,
    "EndpointSlice": EndpointSlice,
    "ControllerRevision": Revision,
    "Gateway": Gateway,
    "HTTPRoute": HttpRoute,
    "GRPCRoute": GrpcRoute,
}
"""The kinds of objects to which service-reconciler and traffic-manager subscribe."""


class Sources:
    """The sources of one process, with remembered answers of gates' servers and Ray nodes."""

    def __init__(
        self,
        kube: Kube,
        dashboard: Dashboard,
        cache: Cache,
        clock: Clock,
        *,
        background: Background,
        outbound: Outbound,
    ) -> None:
        self.kube = kube
        self.cache = cache
        self.clock = clock
        self.outbound = outbound
        self.lookup = Lookup(kube, cache, clock)
        self.serve = ServeApi(dashboard, kube, cache, clock)
        self.windows = Windows(self.serve, background, clock)
        self.warm_ups = WarmUps(self.serve, background)
        self.inquiries = Inquiries(kube, outbound, background, clock)

    def forget(self, objects: Objects) -> None:
        """Drop the answers about objects that are deleted or now belong to a different replica."""
        self.serve.forget(objects)
        for obj in objects:
            for part in (self.windows, self.warm_ups, self.inquiries):
                part.forget(obj.metadata.uid)
