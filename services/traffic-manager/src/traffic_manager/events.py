"""The Events of this service, with KubeRay's reasons and texts where it has them (spec rayservice §13.4)."""

from enum import StrEnum
from typing import Literal

from common.api.event import normal, warning
from common.api.meta import ObjectMeta
from common.kube.resources import GATEWAY
from common.runtime.actions import ActionEvents, Report


class EventReason(StrEnum):
    """Reasons of Events; those after the blank line are ours, the others KubeRay's."""

    CREATED_GATEWAY = "CreatedGateway"
    FAILED_TO_CREATE_GATEWAY = "FailedToCreateGateway"
    UPDATED_GATEWAY = "UpdatedGateway"
    FAILED_TO_UPDATE_GATEWAY = "FailedToUpdateGateway"
    DELETED_GATEWAY = "DeletedGateway"
    FAILED_TO_DELETE_GATEWAY = "FailedToDeleteGateway"
    CREATED_ROUTE = "CreatedHTTPRoute"
    FAILED_TO_CREATE_ROUTE = "FailedToCreateHTTPRoute"
    UPDATED_ROUTE = "UpdatedHTTPRoute"
    FAILED_TO_UPDATE_ROUTE = "FailedToUpdateHTTPRoute"
    DELETED_ROUTE = "DeletedHTTPRoute"
    FAILED_TO_DELETE_ROUTE = "FailedToDeleteHTTPRoute"
    CREATED_GRPC_ROUTE = "CreatedGRPCRoute"
    FAILED_TO_CREATE_GRPC_ROUTE = "FailedToCreateGRPCRoute"
    UPDATED_GRPC_ROUTE = "UpdatedGRPCRoute"
    FAILED_TO_UPDATE_GRPC_ROUTE = "FailedToUpdateGRPCRoute"
    DELETED_GRPC_ROUTE = "DeletedGRPCRoute"
    FAILED_TO_DELETE_GRPC_ROUTE = "FailedToDeleteGRPCRoute"
    UPDATED_APPLICATIONS = "UpdatedServeApplications"
    FAILED_TO_UPDATE_APPLICATIONS = "FailedToUpdateServeApplications"
    UPDATED_CAPACITY = "UpdatedServeTargetCapacity"
    FAILED_TO_UPDATE_CAPACITY = "FailedToUpdateTargetCapacity"

    SERVE_CONFIG_DRIFTED = "ServeConfigDrifted"
    SERVE_CONFIG_NOT_RECORDED = "ServeConfigNotRecorded"
    GATEWAY_API_MISSING = "GatewayAPIMissing"
    GRPC_ROUTE_UNSUPPORTED = "GRPCRouteUnsupported"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    TRAFFIC_SHIFTED = "TrafficShifted"
    TRAFFIC_NOT_CARRIED = "TrafficNotCarried"
    UPGRADE_CANNOT_PROGRESS = "UpgradeCannotProgress"


def written(verb: Literal["Create", "Update", "Delete"], kind: str, where: str, when: str = "") -> ActionEvents:
    """Return the events of a write of the Gateway or a route at `<namespace>/<name>`."""
    text = f"{kind} for RayService {where}" if verb == "Create" else f"the {kind} {where}{when}"
    failed = f"the {text}" if verb == "Create" and kind != GATEWAY.kind else text
    return ActionEvents(success=Report(verb, kind, text).of().success, failure=Report(verb, kind, failed).of().failure)


def capacity_sent(cluster: ObjectMeta) -> ActionEvents:
    """Return the events of a capacity that is sent; the doubled "to" is KubeRay's."""
    text, where = "target_capacity of serve applications to", f"the RayCluster {cluster.namespaced_name}"
    failure = f"Failed to update {text} {where}: "
    return ActionEvents(
        success=normal(EventReason.UPDATED_CAPACITY, "Update", f"Updated {text} to {where}"),
        failure=warning(EventReason.FAILED_TO_UPDATE_CAPACITY, "Update", failure),
    )
