"""The states of a RayJob, as KubeRay spells them in the status (spec rayjob §2.3, §6.5)."""

from enum import StrEnum
from typing import Final

import msgspec


class DeploymentState(StrEnum):
    """Values of `status.jobDeploymentStatus`."""

    NEW = ""
    INITIALIZING = "Initializing"
    WAITING = "Waiting"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    VALIDATION_FAILED = "ValidationFailed"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"


class JobState(StrEnum):
    """Values of `status.jobStatus`, which Ray reports."""

    UNKNOWN = ""
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class FailureReason(StrEnum):
    """Values of `status.reason`. A completed job can have `GRACE_PERIOD` too."""

    SUBMISSION = "SubmissionFailed"
    APPLICATION = "AppFailed"
    DEADLINE = "DeadlineExceeded"
    PRE_RUNNING_DEADLINE = "PreRunningDeadlineExceeded"
    GRACE_PERIOD = "JobDeploymentStatusTransitionGracePeriodExceeded"
    STATUS_CHECKS = "JobStatusCheckTimeoutExceeded"


TERMINAL_JOB_STATES: Final = frozenset({JobState.STOPPED, JobState.SUCCEEDED, JobState.FAILED})
"""The states in which Ray no longer runs the job."""
SUBMITTER_MODES: Final = frozenset({"K8sJobMode", "SidecarMode"})
"""The submission modes in which a container runs `ray job submit`."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt."""

    state: DeploymentState
    """`COMPLETE` or `FAILED`."""
    reason: FailureReason | None = None
    message: str | None = None
    """None keeps the message of the status."""
    job_state: JobState | None = None
    """None keeps the last state that Ray reported."""


def failure(reason: FailureReason, message: str | None = None) -> Ending:
    """Return the end of a failed attempt."""
    return Ending(state=DeploymentState.FAILED, reason=reason, message=message)
