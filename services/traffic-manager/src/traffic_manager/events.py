"""The Events of this service, with KubeRay's reasons and texts where it has them (spec rayservice §13.4)."""

from enum import StrEnum

from common.api.event import normal, warning
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import GATEWAY, Resource
from common.runtime.actions import ActionEvents


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


def created(body: Json) -> ActionEvents:
    """Return the events of a new Gateway or route."""
    kind, where = body["kind"], f"for RayService {body['metadata']['namespace']}/{body['metadata']['name']}"
    which = kind if kind == GATEWAY.kind else f"the {kind}"
    return _reported("Create", kind, f"{kind} {where}", f"{which} {where}")


def updated(resource: Resource, meta: ObjectMeta) -> ActionEvents:
    """Return the events of a changed Gateway or route."""
    return _reported("Update", resource.kind, f"the {resource.kind} {meta.namespace}/{meta.name}")


def deleted(resource: Resource, meta: ObjectMeta, *, suspending: bool = True) -> ActionEvents:
    """Return the events of the deletion of a Gateway or route, with a suspend or by itself."""
    text = f"the {resource.kind} {meta.namespace}/{meta.name}{' during suspend' if suspending else ''}"
    return _reported("Delete", resource.kind, text)


def config_sent(cluster: ObjectMeta, drift: str | None) -> ActionEvents:
    """Return the events of a Serve config that is sent, or sent again because Serve ran another one than the cluster was given."""
    where = f"RayCluster {cluster.namespace}/{cluster.name}"
    report = _reported("Update", "ServeApplications", f"serve applications to the {where}")
    if drift is None:
        return report
    note = f"{where} runs another Serve config than the recorded one ({drift}); it gets the recorded one again"
    return ActionEvents(success=warning(EventReason.SERVE_CONFIG_DRIFTED, "Update", note), failure=report.failure)


def capacity_sent(cluster: ObjectMeta) -> ActionEvents:
    """Return the events of a capacity that is sent; the doubled "to" is KubeRay's."""
    text, where = "target_capacity of serve applications to", f"the RayCluster {cluster.namespace}/{cluster.name}"
    failure = f"Failed to update {text} {where}: "
    return ActionEvents(
        success=normal(EventReason.UPDATED_CAPACITY, "Update", f"Updated {text} to {where}"),
        failure=warning(EventReason.FAILED_TO_UPDATE_CAPACITY, "Update", failure),
    )


def _reported(verb: str, what: str, text: str, failed: str = "") -> ActionEvents:
    return ActionEvents(
        success=normal(EventReason(f"{verb}d{what}"), verb, f"{verb}d {text}"),
        failure=warning(EventReason(f"FailedTo{verb}{what}"), verb, f"Failed to {verb.lower()} {failed or text}: "),
    )
