"""Which service sends Serve configs and moves traffic for a RayService (ADR 5).

If traffic moves in steps, it is traffic-manager; otherwise it is service-reconciler.
service-reconciler decides by the spec and its feature gate whether traffic moves in steps. It
records a decision for steps by setting the target capacity of the cluster in the status. Both
services follow this record, so exactly one of them writes, even while a rollout changes the feature
gate. An upgrade keeps the strategy that it began with until it is over (spec rayservice §9.5).
"""

from typing import Final

from common import labels
from common.api.ray_service import RayService
from common.feature_gates import FeatureGate, Gates

INCREMENTAL: Final = "NewClusterWithIncrementalUpgrade"


def is_recorded(service: RayService) -> bool:
    """Return whether the status records that traffic moves in steps.

    If so, traffic-manager sends configs and moves traffic.
    """
    active, pending = service.status.active_service_status, service.status.pending_service_status
    status = pending if pending.ray_cluster_name else active
    return (
        service.manager == labels.MANAGED_BY_US
        and bool(status.ray_cluster_name)
        and status.target_capacity is not None
    )


def is_incremental(service: RayService, gates: Gates) -> bool:
    """Return whether traffic should move in steps. An upgrade continues the way it began."""
    status = service.status
    if (
        status.active_service_status.ray_cluster_name
        and status.pending_service_status.ray_cluster_name
    ):
        return is_recorded(service)
    return (
        service.manager == labels.MANAGED_BY_US
        and asks_for_steps(service)
        and FeatureGate.INCREMENTAL_UPGRADE in gates
    )


def asks_for_steps(service: RayService) -> bool:
    """Return whether the upgrade strategy in the spec moves traffic in steps."""
    return service.raw_upgrade_strategy.get("type") == INCREMENTAL
