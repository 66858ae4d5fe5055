"""A RayService with the Gateways and routes of its traffic, as the plans of both services see it; each service adds what else it reads."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from common import names
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.ray_service import RayService
from common.ray import poll_interval
from common.upgrade import weighted_route
from common.upgrade.traffic_record import Record


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """A RayService, its Gateways and its routes, read once."""

    service: RayService
    gateways: Mapping[weighted_route.Place, Gateway | None] = {}
    """Our Gateway, and those that the user's route hangs on."""
    route: HttpRoute | None = None
    """The route with the weights: ours, or the user's that the annotation names."""
    our_route: HttpRoute | None = None
    users_routes: tuple[HttpRoute, ...] = ()
    """Routes of users that hold something of ours, or are to."""
    grpc_route: GrpcRoute | None = None
    rest: timedelta = poll_interval.SLOWEST
    """The poll interval of a cluster that serves."""

    @property
    def gateway(self) -> Gateway | None:
        """Return our Gateway."""
        meta = self.service.metadata
        return self.gateways.get((meta.namespace, names.gateway(meta.name)))

    @property
    def former_routes(self) -> tuple[HttpRoute, ...]:
        """Return the routes that carried the traffic before this one."""
        weighted = weighted_route.name_of(self.service)
        ours = () if self.our_route is None else (self.our_route,)
        return tuple(each for each in (*ours, *self.users_routes) if each.metadata.name != weighted)

    @property
    def http_routes(self) -> tuple[HttpRoute, ...]:
        """Return the route that carries the traffic, and those that did before."""
        return (*((self.route,) if self.route is not None else ()), *self.former_routes)

    @property
    def record(self) -> Record:
        """Return what traffic-manager gave to each cluster: the newest record on the routes, else the mirror in the status."""
        return weighted_route.record_of(self.service, self.http_routes)
