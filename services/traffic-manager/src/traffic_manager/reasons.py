"""Every reason of an Event of this service (spec rayservice §13.4)."""

from enum import StrEnum


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
