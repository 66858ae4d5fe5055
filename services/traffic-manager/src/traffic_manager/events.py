"""The reasons of the Events of this service, KubeRay's where it has them (spec rayservice §13.4)."""

from enum import StrEnum
from typing import Final

from common.runtime.actions import Report


class EventReason(StrEnum):
    """Reasons of Events beside those of `common.runtime.actions.Report`; all are ours."""

    GATEWAY_API_MISSING = "GatewayAPIMissing"
    GRPC_ROUTE_UNSUPPORTED = "GRPCRouteUnsupported"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    TRAFFIC_SHIFTED = "TrafficShifted"
    GATE_PASSED = "GatePassed"
    GATE_FAILED = "GateFailed"
    MIRROR_UNSUPPORTED = "MirrorUnsupported"
    TRAFFIC_NOT_CARRIED = "TrafficNotCarried"
    UPGRADE_CANNOT_PROGRESS = "UpgradeCannotProgress"


CAPACITY_SENT: Final = Report(
    "Update",
    "ServeTargetCapacity",
    "target_capacity of serve applications to to the RayCluster {}",
    failed="Failed to update target_capacity of serve applications to the RayCluster {}: ",
    failed_kind="TargetCapacity",
)
"""The doubled "to" is KubeRay's."""
