"""The side routes of an UpgradePolicy: HTTPRoutes for mirrored requests and for a preview."""

from collections.abc import Set

import msgspec

from common.api.gateway import HttpRoute
from common.api.ray_service import RayService
from common.names import SideRole
from common.upgrade import weighted_route
from common.upgrade.policy import UpgradePolicy


class SideRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """The side routes of an upgrade."""

    mirror: HttpRoute | None = None
    preview: HttpRoute | None = None
    foreign: tuple[HttpRoute, ...] = ()
    """Routes of other owners that have the names of side routes which raybus needs."""

    @property
    def existing(self) -> tuple[HttpRoute, ...]:
        """Return the side routes that the RayService owns."""
        return tuple(route for route in (self.mirror, self.preview) if route is not None)


def wanted(service: RayService, policy: UpgradePolicy | None) -> Set[SideRole]:
    """Return which side routes the policy of an upgrade in steps requires.

    None are required if the user provides the main route: it belongs to the user's Gateway, and
    raybus creates no other routes there.
    """
    if policy is None or weighted_route.is_users(service):
        return set()
    asked = {
        SideRole.MIRROR: policy.mirror is not None,
        SideRole.PREVIEW: policy.preview.header_name is not None,
    }
    return {role for role, is_asked in asked.items() if is_asked}
