"""The reasons of this service's Events (spec rayjob §17)."""

from enum import StrEnum


class EventReason(StrEnum):
    """Reasons of Events; those after the blank line are raybus's own, the others KubeRay's.

    Not listed are the reasons in `EventTemplate`.
    """

    INVALID_METADATA = "InvalidRayJobMetadata"
    INVALID_SPEC = "InvalidRayJobSpec"
    INVALID_STATUS = "InvalidRayJobStatus"
    CLUSTER_NOT_FOUND = "RayClusterNotFound"
    CLUSTER_UPDATED = "UpdatedRayCluster"
    CLUSTER_UPDATE_FAILED = "FailedToUpdateRayCluster"
    SCHEDULER_CLEANED_UP = "BatchSchedulerCleanedUp"
    SCHEDULER_FAILED = "FailedToCleanupBatchScheduler"

    RUNNING = "RayJobRunning"
    WAITING = "RayJobWaiting"
    SUBMITTED = "RayJobSubmitted"
    SUBMISSION_FAILED = "FailedToSubmitRayJob"
    ENTRYPOINT_IN_SHELL = "EntrypointRunsInShell"
    SUCCEEDED = "RayJobSucceeded"
    STOPPED = "RayJobStopped"
    FAILED = "RayJobFailed"
    RETRYING = "RayJobRetrying"
    SUSPENDED = "RayJobSuspended"
    RESUMED = "RayJobResumed"
    NOT_STARTED = "RayJobNotStarted"
    NOT_OWNED = "ObjectNotOwned"
    NOT_CLEANED_UP = "NoDeletionRuleMatched"
    FINALIZER_RELEASED = "FinalizerReleased"
    EVENT_LOST = "JobEventLost"


class CronEventReason(StrEnum):
    """Reasons of Events about a RayCronJob; those after the blank line are raybus's own."""

    INVALID_SPEC = "InvalidRayCronJobSpec"
    SUSPENDED = "SuspendedRayCronJob"

    CREATED = "SuccessfulCreate"
    CREATE_FAILED = "FailedCreate"
    DELETED = "SuccessfulDelete"
    DELETE_FAILED = "FailedDelete"
    MISSED = "MissSchedule"
    ALREADY_ACTIVE = "JobAlreadyActive"
