"""Which service writes to the Ray dashboards of a RayService and moves its traffic (ADR 5): one pure function for both services.

traffic-manager does where traffic moves in steps, service-reconciler everywhere else. service-reconciler decides that by the spec and
its feature gate, and records it in the status: there a cluster of an upgrade in steps has a target capacity, any other has none.
Both services follow the record, so one of them always writes, also while a rollout changes the gate. An upgrade ends under the
strategy that it was begun with, whatever spec and gate are by then (spec rayservice §9.5).
"""

from typing import Final

from common import labels
from common.api.ray_service import RayService
from common.feature_gates import Gate, Gates

INCREMENTAL: Final = "NewClusterWithIncrementalUpgrade"


def is_recorded(service: RayService) -> bool:
    """Return whether the status records that the traffic of a RayService moves in steps, so that traffic-manager writes."""
    active, pending = service.status.active_service_status, service.status.pending_service_status
    held = pending if pending.ray_cluster_name else active
    return (
        service.manager == labels.MANAGED_BY_US
        and bool(held.ray_cluster_name)
        and held.target_capacity is not None
    )


def is_incremental(service: RayService, gates: Gates) -> bool:
    """Return whether the traffic of a RayService is to move in steps: what service-reconciler records."""
    status = service.status
    if (
        status.active_service_status.ray_cluster_name
        and status.pending_service_status.ray_cluster_name
    ):
        return is_recorded(service)
    return (
        service.manager == labels.MANAGED_BY_US
        and asks_for_steps(service)
        and Gate.INCREMENTAL_UPGRADE in gates
    )


def asks_for_steps(service: RayService) -> bool:
    """Return whether the spec wants upgrades in steps."""
    return service.raw_upgrade_strategy.get("type") == INCREMENTAL
