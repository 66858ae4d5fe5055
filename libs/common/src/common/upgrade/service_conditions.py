"""The conditions of a RayService and their reasons (spec rayservice §13.3)."""

from enum import StrEnum


class ConditionType(StrEnum):
    """The types of a RayService's conditions.

    Those from UpgradePaused on are raybus's own and exist only while they are needed.
    """

    READY = "Ready"
    UPGRADE_IN_PROGRESS = "UpgradeInProgress"
    ROLLBACK_IN_PROGRESS = "RollbackInProgress"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"

    UPGRADE_PAUSED = "UpgradePaused"
    UPGRADE_STALLED = "UpgradeStalled"
    UPGRADE_ABORTED = "UpgradeAborted"
    UPGRADE_GATES_PASSED = "UpgradeGatesPassed"
    INVALID_ANNOTATIONS = "InvalidAnnotations"
    CLUSTER_SPEC_IGNORED = "ClusterSpecIgnored"


class Reason(StrEnum):
    """Reasons of conditions; those from PauseRequested on are raybus's own."""

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

    PAUSE_REQUESTED = "PauseRequested"
    PAUSE_OVER = "PauseOver"
    ABORT_REQUESTED = "AbortRequested"
    INVALID_VALUE = "InvalidValue"
    STRATEGY_IS_NONE = "UpgradeStrategyNone"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    INSUFFICIENT_REPLICAS = "InsufficientReplicas"
    APPLICATION_NOT_READY = "ApplicationNotReady"
    DASHBOARD_UNAUTHORIZED = "DashboardUnauthorized"
    GATEWAY_NOT_READY = "GatewayNotReady"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    QUOTA_EXCEEDED = "QuotaExceeded"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    PAUSED_BY_POLICY = "PausedByPolicy"
    INVALID_POLICY = "InvalidUpgradePolicy"
    GATES_PASSED = "GatesPassed"
    GATE_FAILED = "GateFailed"
    EARLIER_GATE_FAILED = "EarlierGateFailed"
    GATE_INCONCLUSIVE = "GateInconclusive"
