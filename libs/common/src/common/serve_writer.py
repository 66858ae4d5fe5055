"""Who writes to the Ray dashboards of a RayService, and who moves its traffic (ADR 5): one pure function for both services.

traffic-manager does where traffic moves in steps, service-reconciler everywhere else. An upgrade ends under the strategy that
it was begun with, whatever the spec says by then (spec rayservice §9.5): a pending cluster that was begun in steps has a
target capacity in the status, any other has none.
"""

from enum import StrEnum
from typing import Final

from common import labels
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.feature_gates import Gate, Gates

INCREMENTAL: Final = "NewClusterWithIncrementalUpgrade"


class Writer(StrEnum):
    """The services that may write to a dashboard."""

    SERVICE_RECONCILER = "service-reconciler"
    TRAFFIC_MANAGER = "traffic-manager"


def of(service: RayService, gates: Gates) -> Writer:
    """Return the one service that writes Serve configs and capacities of a RayService now."""
    return Writer.TRAFFIC_MANAGER if is_incremental(service, gates) else Writer.SERVICE_RECONCILER


def is_incremental(service: RayService, gates: Gates) -> bool:
    """Tell whether the traffic of a RayService moves in steps."""
    if service.raw_spec.get("managedBy", labels.MANAGED_BY_US) != labels.MANAGED_BY_US:
        return False
    active, pending = service.status.active_service_status, service.status.pending_service_status
    if active.ray_cluster_name and pending.ray_cluster_name:
        return pending.target_capacity is not None
    return asks_for_steps(service) and Gate.INCREMENTAL_UPGRADE in gates


def asks_for_steps(service: RayService) -> bool:
    """Tell whether the spec wants upgrades in steps."""
    strategy: Json = service.raw_spec.get("upgradeStrategy") or {}
    return strategy.get("type") == INCREMENTAL
