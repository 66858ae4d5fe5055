"""Decide from Ray's answer and the submitter how a running attempt goes on (spec rayjob §6.4).

Ray's answer takes precedence over the submitter, and a recorded end of the job stays valid. KubeRay
checks the submitter first. After a pause of the operator it may therefore declare a job FAILED that
has succeeded (§10.4). A dashboard that does not answer proves nothing: the attempt goes on until
the status checks time out.
"""

from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from common import untrusted
from common.api.meta import whole_seconds
from common.api.ray_job import (
    TERMINAL_JOB_STATES,
    DeploymentState,
    JobState,
    RayJob,
    SubmissionMode,
)
from job_reconciler import deadlines
from job_reconciler.states import SUBMITTER_MODES, Ending, FailureReason, failure

SUBMITTER_TIMEOUT: Final = timedelta(seconds=30)
"""Time after the end of the submitter within which the Ray job must end."""


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Ray's answer about a job that it knows."""

    state: JobState
    message: str = ""


class UnknownJob(msgspec.Struct, frozen=True):
    """Ray's answer that it does not know the job."""


class SilentDashboard(msgspec.Struct, frozen=True):
    """No usable answer to a request about the job."""

    error: str


Answer: TypeAlias = JobAnswer | UnknownJob | SilentDashboard


class Submitter(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the container that submits the job and follows its log."""

    is_present: bool = True
    """False if the object that runs it, a Kubernetes Job or the head pod, does not exist."""
    finished_at: datetime | None = None
    failure_message: str | None = None
    """The failure of the submitter; None unless it has failed and is not restarted."""

    @property
    def has_ended(self) -> bool:
        """Whether the container will neither submit the job nor follow its log any more."""
        return (
            not self.is_present or self.finished_at is not None or self.failure_message is not None
        )


NO_SUBMITTER: Final = Submitter(is_present=False)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits for all attempts, which are settings of the operator."""

    grace_period: timedelta = deadlines.DEFAULT_GRACE_PERIOD
    status_check_timeout: timedelta = deadlines.DEFAULT_STATUS_CHECK_TIMEOUT


DEFAULT_LIMITS: Final = Limits()


class AttemptDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of one reconcile about a running attempt; `ending` is None if it continues."""

    ending: Ending | None = None
    job_state: JobState
    message: str
    failing_since: datetime | None = None
    """Start of the present series of failed status checks; None if the last one succeeded."""
    must_submit: bool = False


def decide(
    job: RayJob,
    answer: Answer,
    submitter: Submitter,
    now: datetime,
    limits: Limits = DEFAULT_LIMITS,
) -> AttemptDecision:
    """Decide whether a running attempt ends, must submit its job, or continues."""
    status, known = job.status, _known_state(job)
    info = answer if isinstance(answer, JobAnswer) else None
    if info is None and known in TERMINAL_JOB_STATES:
        info = JobAnswer(state=known, message=status.message)  # the recorded outcome stays true
        if isinstance(answer, UnknownJob):
            submitter = NO_SUBMITTER  # the log that it follows is lost with the head
    failing_since = None
    if isinstance(answer, SilentDashboard):
        failing_since = status.job_status_check_failure_start_time or whole_seconds(now)
    if info is not None:
        ending = _after_info(job, info, submitter, now)
        if ending is None and info.state in TERMINAL_JOB_STATES:
            ending = deadlines.find_passed_grace_period(job, now, limits.grace_period)
    elif isinstance(answer, UnknownJob):
        ending = _after_not_found(job, submitter)
    else:
        ending = _without_head(job, submitter)
    if ending is None and failing_since is not None:
        ending = deadlines.find_failed_status_checks(job, now, limits.status_check_timeout)
    return AttemptDecision(
        ending=ending,
        job_state=known if info is None else info.state,
        message=status.message if info is None else info.message,
        failing_since=failing_since,
        must_submit=isinstance(answer, UnknownJob) and _must_submit(job),
    )


def _after_info(job: RayJob, info: JobAnswer, submitter: Submitter, now: datetime) -> Ending | None:
    has_submitter = job.spec.submission_mode in SUBMITTER_MODES
    if info.state not in TERMINAL_JOB_STATES:
        return _while_ray_runs(job, submitter, now) if has_submitter else None
    if has_submitter and not submitter.has_ended:
        return None  # the submitter may still print the end of the log
    if info.state == JobState.FAILED:
        return failure(FailureReason.APPLICATION)
    return Ending(state=DeploymentState.COMPLETE)


def _while_ray_runs(job: RayJob, submitter: Submitter, now: datetime) -> Ending | None:
    """Return the failure of an attempt whose submitter ended before its Ray job, or None."""
    if (ending := _without_head(job, submitter)) is not None:
        return ending
    if submitter.failure_message is not None:
        return failure(FailureReason.SUBMISSION, submitter.failure_message)
    if submitter.finished_at is None:
        return None
    finished = untrusted.bounded(submitter.finished_at)
    if now < finished + SUBMITTER_TIMEOUT:
        return None
    return Ending(
        state=DeploymentState.FAILED,
        reason=FailureReason.GRACE_PERIOD,
        message=f"The RayJob submitter finished at {finished:%Y-%m-%d %H:%M:%S} "
        "but the ray job did not reach terminal state within "
        f"{int(SUBMITTER_TIMEOUT.total_seconds())}s",
        job_state=JobState.FAILED,
    )


def _after_not_found(job: RayJob, submitter: Submitter) -> Ending | None:
    mode, was_known = job.spec.submission_mode, _known_state(job) != JobState.UNKNOWN
    if mode in {SubmissionMode.HTTP, SubmissionMode.K8S_JOB} and was_known:
        return failure(
            FailureReason.APPLICATION,
            f"Ray no longer knows job {job.status.job_id}: its head was replaced. It is not "
            "submitted again, because a part of it may have run.",
        )
    if mode not in SUBMITTER_MODES:
        return None
    if (ending := _without_head(job, submitter)) is not None:
        return ending
    if submitter.failure_message is not None:
        return failure(FailureReason.SUBMISSION, submitter.failure_message)
    if submitter.finished_at is None:
        return None
    return failure(
        FailureReason.APPLICATION, "Submitter completed but Ray job not found in RayCluster."
    )


def _without_head(job: RayJob, submitter: Submitter) -> Ending | None:
    """Return the failure of an attempt whose submitter was deleted with its head pod, or None."""
    if job.spec.submission_mode != SubmissionMode.SIDECAR or submitter.is_present:
        return None
    return failure(FailureReason.APPLICATION, "Ray head pod not found.")


def _must_submit(job: RayJob) -> bool:
    """Return whether the job must be submitted over HTTP.

    A repeated submission is harmless, because Ray refuses a second job with the same ID.
    """
    return job.spec.submission_mode == SubmissionMode.HTTP and _known_state(job) == JobState.UNKNOWN


def _known_state(job: RayJob) -> JobState:
    """Return the last recorded state of the job; an unknown state counts as running."""
    try:
        return JobState(job.status.job_status)
    except ValueError:
        return JobState.RUNNING
