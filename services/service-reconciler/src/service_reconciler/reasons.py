"""The reasons of this service's Events (spec rayservice §13.4), and texts of conditions."""

from enum import StrEnum
from typing import Final

RAY_SERVICE_INITIALIZING: Final = "RayService is initializing"
"""Message of the first conditions of a RayService."""


class EventReason(StrEnum):
    """Reasons of Events: first the reasons that KubeRay has, then those that only raybus has.

    Not listed are the reasons that `EventTemplate` makes and those that `common.ray` reports.
    """

    INVALID_METADATA = "InvalidRayServiceMetadata"
    INVALID_SPEC = "InvalidRayServiceSpec"
    INVALID_STATUS = "InvalidRayServiceStatus"
    FAILED_TO_UPDATE_APPLICATIONS = "FailedToUpdateServeApplications"
    TIMED_OUT = "RayServiceInitializingTimeout"

    UPGRADE_STARTED = "UpgradeStarted"
    UPGRADE_PROMOTED = "UpgradePromoted"
    UPGRADE_CANCELLED = "UpgradeCancelled"
    UPGRADE_PAUSED = "UpgradePaused"
    UPGRADE_RESUMED = "UpgradeResumed"
    UPGRADE_STALLED = "UpgradeStalled"
    UPGRADE_ABORTED = "UpgradeAborted"
    UPGRADE_EVENT_LOST = "UpgradeEventLost"
    POLICY_EDITED = "UpgradePolicyEdited"
    INVALID_ANNOTATION = "InvalidAnnotation"
    CLUSTER_SPEC_IGNORED = "ClusterSpecIgnored"
    ROLLBACK_STARTED = "RollbackStarted"
    ROLLBACK_COMPLETED = "RollbackCompleted"
    ROLLBACK_CANCELLED = "RollbackCancelled"
    ROLLBACK_IMPOSSIBLE = "RollbackImpossible"
    GATEWAY_NOT_READY = "GatewayNotReady"
    ROUTE_NOT_READY = "HTTPRouteNotReady"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    ROUTE_NOT_PERMITTED = "HTTPRouteNotPermitted"
    GRPC_ROUTE_NOT_READY = "GRPCRouteNotReady"
    OBJECT_NOT_OWNED = "ObjectNotOwned"
    DRAIN_STARTED = "DrainStarted"
    DRAIN_NOT_MARKED = "DrainNotTold"
    FAILED_TO_LABEL_POD = "FailedToLabelPod"
    OLD_CLUSTER_KEPT = "OldClusterKept"
    DRAIN_ENDED = "DrainEnded"
    UPGRADE_RECEIPT = "UpgradeReceipt"
    RECEIPT_NOT_WRITTEN = "ReceiptNotWritten"
    STATUS_TRUNCATED = "StatusTruncated"
    FINALIZER_RELEASED = "FinalizerReleased"
    SPEC_NOT_RECORDED = "SpecNotRecorded"
    INCREMENTAL_UPGRADE_DISABLED = "IncrementalUpgradeDisabled"
    EMPTY_SERVE_CONFIG = "EmptyServeConfig"
    PODS_NOT_STARTING = "PodsNotStarting"
    INSUFFICIENT_REPLICAS = "InsufficientReplicas"
    GATE_INCONCLUSIVE = "GateInconclusive"
    APPLICATION_NOT_RUNNING = "ServeApplicationNotRunning"
    SERVE_CONFIG_UNKNOWN = "ServeConfigUnknown"
    DASHBOARD_UNREACHABLE = "RayDashboardUnreachable"
    DASHBOARD_UNAUTHORIZED = "RayDashboardUnauthorized"
    CLUSTER_NOT_RUNNING = "RayClusterNotRunning"
    NO_SERVE_PORT = "NoServePort"
    SERVICE_NOT_OWNED = "ServiceNotOwned"


def caused(message: str, cause: str | None) -> str:
    """Append the cause to a message, if the cause is known."""
    return f"{message.rstrip('.')}: {cause}" if cause else message
