"""The Events of this service, with KubeRay's reasons and texts where it has them (spec rayservice §13.4)."""

from enum import StrEnum

from common.api.event import Event, normal, warning
from common.api.meta import ObjectMeta
from common.kube.resources import GATEWAY
from common.runtime.actions import ActionEvents, Report
from traffic_manager.migration.state import Split


class EventReason(StrEnum):
    """Reasons of Events beside those of `common.runtime.actions.Report`; those after the blank line are ours, the others KubeRay's."""

    UPDATED_CAPACITY = "UpdatedServeTargetCapacity"
    FAILED_TO_UPDATE_CAPACITY = "FailedToUpdateTargetCapacity"

    SERVE_CONFIG_NOT_RECORDED = "ServeConfigNotRecorded"
    GATEWAY_API_MISSING = "GatewayAPIMissing"
    GRPC_ROUTE_UNSUPPORTED = "GRPCRouteUnsupported"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    TRAFFIC_SHIFTED = "TrafficShifted"
    GATE_PASSED = "GatePassed"
    GATE_FAILED = "GateFailed"
    MIRROR_UNSUPPORTED = "MirrorUnsupported"
    TRAFFIC_NOT_CARRIED = "TrafficNotCarried"
    UPGRADE_CANNOT_PROGRESS = "UpgradeCannotProgress"


def created(kind: str, where: str) -> ActionEvents:
    """Return the Events of the creation of a Gateway or a route at `<namespace>/<name>`; KubeRay has the article in one of them."""
    what = f"{kind} for RayService {where}"
    refused = Report("Create", kind, what if kind == GATEWAY.kind else f"the {what}")
    return ActionEvents(success=Report("Create", kind, what).of().success, failure=refused.of().failure)


def traffic_shifted(active: str, pending: str, split: Split) -> Event:
    """Return the event of weights that move between two clusters."""
    note = f"{active} gets {split.active} and {pending} {split.pending} percent: {split.note}"
    return normal(EventReason.TRAFFIC_SHIFTED, "Upgrade", note)


def capacity_sent(cluster: ObjectMeta) -> ActionEvents:
    """Return the events of a capacity that is sent; the doubled "to" is KubeRay's."""
    text, where = "target_capacity of serve applications to", f"the RayCluster {cluster.namespaced_name}"
    failure = f"Failed to update {text} {where}: "
    return ActionEvents(
        success=normal(EventReason.UPDATED_CAPACITY, "Update", f"Updated {text} to {where}"),
        failure=warning(EventReason.FAILED_TO_UPDATE_CAPACITY, "Update", failure),
    )
