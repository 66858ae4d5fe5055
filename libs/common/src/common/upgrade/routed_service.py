"""What both services observe of a RayService alike: the service itself, what carries its requests, and the policy of its upgrade."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from common import names
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.ray_service import RayService
from common.ray import poll_interval
from common.upgrade.policy import UpgradePolicy, WarmUpProgress
from common.upgrade.weighted_route import Place


class RoutedService(msgspec.Struct, frozen=True, kw_only=True):
    """A RayService with what carries its requests, as both services observe it; each adds what else it decides from."""

    service: RayService
    gateways: Mapping[Place, Gateway | None] = {}
    """Our Gateway, and those that the user's route hangs on."""
    route: HttpRoute | None = None
    """The route with the weights: ours, or the user's that the annotation names."""
    our_route: HttpRoute | None = None
    users_routes: tuple[HttpRoute, ...] = ()
    """Routes of users that hold something of ours, or are to."""
    grpc_route: GrpcRoute | None = None
    policy: UpgradePolicy | None = None
    """The UpgradePolicy that the upgrade began with."""
    warm_up: WarmUpProgress | None = None
    """How far the pending cluster's warm-up is; None where none is asked for, or it cannot begin yet."""
    rest: timedelta = poll_interval.SLOWEST
    """The poll interval of a cluster that serves."""

    @property
    def gateway(self) -> Gateway | None:
        """Return our Gateway."""
        meta = self.service.metadata
        return self.gateways.get((meta.namespace, names.gateway(meta.name)))
