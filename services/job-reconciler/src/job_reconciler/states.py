"""How an attempt of a RayJob ends, in KubeRay's words (spec rayjob §2.3, §6.5)."""

from enum import StrEnum
from typing import Final

import msgspec

from common.api.ray_job import DeploymentState, JobState, SubmissionMode


class FailureReason(StrEnum):
    """Values of `status.reason`. A completed job can have `GRACE_PERIOD` too."""

    SUBMISSION = "SubmissionFailed"
    APPLICATION = "AppFailed"
    DEADLINE = "DeadlineExceeded"
    PRE_RUNNING_DEADLINE = "PreRunningDeadlineExceeded"
    GRACE_PERIOD = "JobDeploymentStatusTransitionGracePeriodExceeded"
    STATUS_CHECKS = "JobStatusCheckTimeoutExceeded"


SUBMITTER_MODES: Final = frozenset({SubmissionMode.K8S_JOB, SubmissionMode.SIDECAR})
"""Submission modes in which a container, the submitter, runs `ray job submit`."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one attempt."""

    state: DeploymentState
    """State of the RayJob after the attempt: `COMPLETE` or `FAILED`."""
    reason: FailureReason | None = None
    message: str | None = None
    """Message for the status; None keeps the message in the status."""
    job_state: JobState | None = None
    """Final state of the Ray job; None keeps the last state that Ray reported."""


def failure(reason: FailureReason, message: str | None = None) -> Ending:
    """Return the outcome of an attempt that failed."""
    return Ending(state=DeploymentState.FAILED, reason=reason, message=message)
