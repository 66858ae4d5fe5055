"""The observation of a RayService that service-reconciler and traffic-manager share."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Generic, TypeVar

import msgspec

from common import names
from common.annotation_record import EARLIEST
from common.api.gateway import Gateway, GrpcRoute, HttpRoute, RoutingProblem
from common.api.ray_service import RayService
from common.ray import poll_interval
from common.ray.view import ServeView
from common.upgrade import controls, weighted_route
from common.upgrade.controls import Controls
from common.upgrade.gate_types import AnyGate
from common.upgrade.gates import GateResult
from common.upgrade.policy import UpgradePolicy, WarmUpProgress
from common.upgrade.side_routes import SideRoutes
from common.upgrade.traffic_record import Record
from common.upgrade.weighted_route import Place

SETTLES_WITHIN: Final = timedelta(seconds=10)
"""Time within which a Gateway controller is expected to apply a new route (ADR 43)."""
View = TypeVar("View", bound=ServeView)


class RoutedService(msgspec.Struct, Generic[View], frozen=True, kw_only=True, dict=True):
    """A RayService, its clusters and its routes, as observed for one reconcile.

    service-reconciler and traffic-manager each extend this class with fields of their own.
    """

    service: RayService
    observed_at: datetime = EARLIEST
    active: View | None = None
    pending: View | None = None
    gateways: Mapping[Place, Gateway | None] = {}
    """raybus's own Gateway, and the Gateways to which the user's route is attached."""
    route: HttpRoute | None = None
    """The route that carries the traffic: raybus's own, or the user's named in an annotation."""
    our_route: HttpRoute | None = None
    users_routes: tuple[HttpRoute, ...] = ()
    """Routes of users to which raybus has written, or will write, backends and labels."""
    grpc_route: GrpcRoute | None = None
    side_routes: SideRoutes = SideRoutes()
    policy: UpgradePolicy | None = None
    """The UpgradePolicy that the present upgrade follows."""
    warm_up: WarmUpProgress | None = None
    """Progress of the pending cluster's warm-up; None if it has none or cannot serve yet."""
    answers: Mapping[AnyGate, GateResult] = {}
    """Results of the gates that ask a server, at the present weight.

    In an upgrade that moves all traffic at once, these are the results of all its gates.
    """
    renewed_record: Record | None = None
    """The traffic record without entries about an earlier Serve config of the pending cluster.

    None if the record on the routes has no such entries.
    """
    rest: timedelta = poll_interval.MAX_INTERVAL
    """Poll interval of the dashboards of a service that has not changed for a long time."""

    @cached_property
    def controls(self) -> Controls:
        return controls.read_controls(self.service)

    @property
    def gateway(self) -> Gateway | None:
        meta = self.service.metadata
        return self.gateways.get((meta.namespace, names.gateway(meta.name)))

    @cached_property
    def views(self) -> tuple[View, ...]:
        """Return the active and the pending cluster, as far as they exist."""
        return tuple(view for view in (self.active, self.pending) if view is not None)

    @property
    def routes(self) -> tuple[HttpRoute, ...]:
        """Return the route that carries the traffic, if it exists, and `former_routes`."""
        return self.former_routes if self.route is None else (self.route, *self.former_routes)

    @property
    def former_routes(self) -> tuple[HttpRoute, ...]:
        """Return the known routes other than `route`, which may have carried the traffic before."""
        weighted, routes = (
            weighted_route.name_of(self.service),
            (self.our_route, *self.users_routes),
        )
        return tuple(
            route for route in routes if route is not None and route.metadata.name != weighted
        )

    @cached_property
    def record(self) -> Record:
        """Return the newest traffic record on `routes`, or else the copy in the status."""
        return self.renewed_record or weighted_route.record_of(self.service, self.routes)

    @cached_property
    def is_settled(self) -> bool:
        """Return whether a Gateway has had enough time to apply the last weights.

        Used only for Gateway controllers whose conditions do not have an observed generation.
        """
        return self.moved_at is None or self.observed_at >= self.moved_at + SETTLES_WITHIN

    @cached_property
    def moved_at(self) -> datetime | None:
        """Return when raybus last moved the weight of a cluster; None if it never did."""
        moves = (share.moved_at for share in self.record.clusters.values())
        return max((moment for moment in moves if moment is not None), default=None)

    @property
    def gateway_trouble(self) -> RoutingProblem | None:
        """Return why a Gateway takes no requests; None if all Gateways take requests."""
        return weighted_route.gateway_trouble(self.service, self.route, self.gateways)
