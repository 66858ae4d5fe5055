"""What both services observe of a RayService alike: its two clusters, what carries its requests, and the policy of its upgrade."""

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
from common.upgrade.gates import Result
from common.upgrade.policy import UpgradePolicy, WarmUpProgress
from common.upgrade.side_routes import SideRoutes
from common.upgrade.traffic_record import Record
from common.upgrade.weighted_route import Place

SETTLES_WITHIN: Final = timedelta(seconds=10)
"""Gateway controllers take in a route within seconds (ADR 43)."""
View = TypeVar("View", bound=ServeView)


class RoutedService(msgspec.Struct, Generic[View], frozen=True, kw_only=True, dict=True):
    """A RayService with what carries its requests, as both services observe it; each adds what else it decides from.

    What follows from an observation alone is computed once.
    """

    service: RayService
    observed_at: datetime = EARLIEST
    active: View | None = None
    pending: View | None = None
    gateways: Mapping[Place, Gateway | None] = {}
    """Our Gateway, and those that the user's route hangs on."""
    route: HttpRoute | None = None
    """The route with the weights: ours, or the user's that the annotation names."""
    our_route: HttpRoute | None = None
    users_routes: tuple[HttpRoute, ...] = ()
    """Routes of users that hold something of ours, or are to."""
    grpc_route: GrpcRoute | None = None
    side_routes: SideRoutes = SideRoutes()
    policy: UpgradePolicy | None = None
    """The UpgradePolicy that the upgrade began with."""
    warm_up: WarmUpProgress | None = None
    """How far the pending cluster's warm-up is; None where none is asked for, or it cannot begin yet."""
    answers: Mapping[AnyGate, Result] = {}
    """What the gates that ask a server came to at this weight; all gates, before all traffic moves at once."""
    renewed_record: Record | None = None
    """The record without what is about an earlier Serve config of the pending cluster; None where the one on the routes has none of that."""
    rest: timedelta = poll_interval.SLOWEST
    """The poll interval of a cluster that serves."""

    @cached_property
    def controls(self) -> Controls:
        """Return the user's settings for upgrades."""
        return controls.of(self.service)

    @property
    def gateway(self) -> Gateway | None:
        """Return our Gateway."""
        meta = self.service.metadata
        return self.gateways.get((meta.namespace, names.gateway(meta.name)))

    @cached_property
    def views(self) -> tuple[View, ...]:
        """Return the active and the pending cluster, as far as they exist."""
        return tuple(each for each in (self.active, self.pending) if each is not None)

    @property
    def routes(self) -> tuple[HttpRoute, ...]:
        """Return the route that carries the traffic, and those that did before."""
        return self.former_routes if self.route is None else (self.route, *self.former_routes)

    @property
    def former_routes(self) -> tuple[HttpRoute, ...]:
        """Return the routes that carried the traffic before this one."""
        weighted, held = weighted_route.name_of(self.service), (self.our_route, *self.users_routes)
        return tuple(each for each in held if each is not None and each.metadata.name != weighted)

    @cached_property
    def record(self) -> Record:
        """Return the newest record on these routes; the mirror in the status where none has any."""
        return self.renewed_record or weighted_route.record_of(self.service, self.routes)

    @cached_property
    def is_settled(self) -> bool:
        """Return whether a Gateway must have taken in the last weights, if it follows the route at all.

        That counts only for a controller that states no generation in its conditions.
        """
        return self.moved_at is None or self.observed_at >= self.moved_at + SETTLES_WITHIN

    @cached_property
    def moved_at(self) -> datetime | None:
        """Return when raybus last moved the weight of a cluster; None where it never did."""
        moves = (share.moved_at for share in self.record.clusters.values())
        return max((each for each in moves if each is not None), default=None)

    @property
    def gateway_trouble(self) -> RoutingProblem | None:
        """Return why a Gateway takes no requests, with its name."""
        return weighted_route.gateway_trouble(self.service, self.route, self.gateways)
