"""The reasons of job-reconciler's Events (spec rayjob §17)."""

from enum import StrEnum


class EventReason(StrEnum):
    """Reasons of Events: above the blank line those of KubeRay, below it those of raybus.

    The reasons that `EventTemplate` derives from its fields are not listed.
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
    """Reasons of Events about a RayCronJob: above the blank line KubeRay's, below it raybus's."""

    INVALID_SPEC = "InvalidRayCronJobSpec"
    SUSPENDED = "SuspendedRayCronJob"

    CREATED = "SuccessfulCreate"
    CREATE_FAILED = "FailedCreate"
    DELETED = "SuccessfulDelete"
    DELETE_FAILED = "FailedDelete"
    MISSED = "MissSchedule"
    ALREADY_ACTIVE = "JobAlreadyActive"
