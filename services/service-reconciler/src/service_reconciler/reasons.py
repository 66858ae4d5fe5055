"""Every word that this service uses as the reason of a condition or of an Event (spec rayservice §13.3, §13.4)."""

from enum import StrEnum
from typing import Final

RAY_SERVICE_INITIALIZING: Final = "RayService is initializing"
"""The message of the first conditions."""


class ConditionType(StrEnum):
    """The conditions of a RayService."""

    READY = "Ready"
    UPGRADE_IN_PROGRESS = "UpgradeInProgress"
    ROLLBACK_IN_PROGRESS = "RollbackInProgress"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"


class Reason(StrEnum):
    """Reasons of conditions."""

    INITIALIZING = "Initializing"
    INITIALIZING_TIMEOUT = "InitializingTimeout"
    VALIDATION_FAILED = "ValidationFailed"
    NON_ZERO_SERVE_ENDPOINTS = "NonZeroServeEndpoints"
    ZERO_SERVE_ENDPOINTS = "ZeroServeEndpoints"
    DESIRED_CLUSTER_SPEC_CHANGED = "DesiredClusterSpecChanged"
    BOTH_CLUSTERS_EXIST = "BothActivePendingClustersExist"
    NO_PENDING_CLUSTER = "NoPendingCluster"
    NO_ACTIVE_CLUSTER = "NoActiveCluster"
    SUSPEND_REQUESTED = "SuspendRequested"
    SUSPEND_IN_PROGRESS = "SuspendInProgress"
    SUSPEND_COMPLETE = "SuspendComplete"
    RESUMED = "RayServiceResumed"


class EventReason(StrEnum):
    """Reasons of Events; those after the blank line are ours, the others KubeRay's."""

    INVALID_METADATA = "InvalidRayServiceMetadata"
    INVALID_SPEC = "InvalidRayServiceSpec"
    CREATED_CLUSTER = "CreatedRayCluster"
    FAILED_TO_CREATE_CLUSTER = "FailedToCreateRayCluster"
    UPDATED_CLUSTER = "UpdatedRayCluster"
    FAILED_TO_UPDATE_CLUSTER = "FailedToUpdateRayCluster"
    DELETED_CLUSTER = "DeletedRayCluster"
    FAILED_TO_DELETE_CLUSTER = "FailedToDeleteRayCluster"
    CREATED_SERVICE = "CreatedService"
    FAILED_TO_CREATE_SERVICE = "FailedToCreateService"
    UPDATED_SERVICE = "UpdatedService"
    FAILED_TO_UPDATE_SERVICE = "FailedToUpdateService"
    DELETED_SERVICE = "DeletedService"
    FAILED_TO_DELETE_SERVICE = "FailedToDeleteService"
    UPDATED_APPLICATIONS = "UpdatedServeApplications"
    FAILED_TO_UPDATE_APPLICATIONS = "FailedToUpdateServeApplications"
    UPDATED_HEAD_LABEL = "UpdatedHeadPodServeLabel"
    FAILED_TO_UPDATE_HEAD_LABEL = "FailedToUpdateHeadPodServeLabel"
    TIMED_OUT = "RayServiceInitializingTimeout"

    UPGRADE_STARTED = "UpgradeStarted"
    UPGRADE_PROMOTED = "UpgradePromoted"
    UPGRADE_CANCELLED = "UpgradeCancelled"
    ROLLBACK_STARTED = "RollbackStarted"
    ROLLBACK_COMPLETED = "RollbackCompleted"
    ROLLBACK_CANCELLED = "RollbackCancelled"
    ROLLBACK_IMPOSSIBLE = "RollbackImpossible"
    GATEWAY_NOT_READY = "GatewayNotReady"
    ROUTE_NOT_READY = "HTTPRouteNotReady"
    GRPC_ROUTE_NOT_READY = "GRPCRouteNotReady"
    DRAIN_STARTED = "DrainStarted"
    DRAIN_ENDED = "DrainEnded"
    UPGRADE_RECEIPT = "UpgradeReceipt"
    INCREMENTAL_UPGRADE_DISABLED = "IncrementalUpgradeDisabled"
    EMPTY_SERVE_CONFIG = "EmptyServeConfig"
    PODS_NOT_STARTING = "PodsNotStarting"
    APPLICATION_NOT_RUNNING = "ServeApplicationNotRunning"
    DASHBOARD_UNREACHABLE = "RayDashboardUnreachable"
    CLUSTER_NOT_RUNNING = "RayClusterNotRunning"
    NO_SERVE_PORT = "NoServePort"
    SERVICE_NOT_OWNED = "ServiceNotOwned"
