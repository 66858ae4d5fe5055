"""The time limits of an attempt to run a job, with KubeRay's messages (spec rayjob §10).

A limit counts as exceeded as soon as its exact moment is reached. Times from Ray and KubeRay are
printed in UTC.
"""

from datetime import datetime, timedelta
from typing import Final

from common import untrusted
from common.api.ray_job import TERMINAL_JOB_STATES, DeploymentState, JobState, RayJob
from common.runtime import actions
from job_reconciler.states import Ending, FailureReason, failure

DEFAULT_GRACE_PERIOD: Final = timedelta(seconds=300)
"""Time for which a submitter may keep running after the end of its Ray job."""
DEFAULT_STATUS_CHECK_TIMEOUT: Final = timedelta(seconds=300)
"""Time without an answer of the dashboard after which an attempt fails."""
_BEFORE_RUNNING: Final = frozenset({DeploymentState.INITIALIZING, DeploymentState.WAITING})
_WITH_ACTIVE_DEADLINE: Final = frozenset({DeploymentState.INITIALIZING, DeploymentState.RUNNING})


def find_passed_deadline(job: RayJob, now: datetime) -> Ending | None:
    """Return the failure of an attempt whose deadline has passed (§10), or None."""
    start = job.status.start_time
    if start is None:
        return None
    shown = f"{untrusted.bounded(start):%Y-%m-%d %H:%M:%S} +0000 UTC"
    active, pre_running = _get_active_deadline(job), _get_pre_running_deadline(job)
    if active is not None and now >= active:
        return failure(
            FailureReason.DEADLINE,
            f"The RayJob has passed the activeDeadlineSeconds. StartTime: {shown}. "
            f"ActiveDeadlineSeconds: {job.spec.active_deadline_seconds}",
        )
    if pre_running is not None and now >= pre_running:
        return failure(
            FailureReason.PRE_RUNNING_DEADLINE,
            f"The RayJob has passed the preRunningDeadlineSeconds. StartTime: {shown}. "
            f"PreRunningDeadlineSeconds: {job.spec.pre_running_deadline_seconds}",
        )
    return None


def next_deadline(job: RayJob) -> datetime | None:
    """Return the earliest deadline of the attempt; None if it has no deadline."""
    return actions.earliest(_get_active_deadline(job), _get_pre_running_deadline(job))


def find_passed_grace_period(
    job: RayJob, now: datetime, grace_period: timedelta = DEFAULT_GRACE_PERIOD
) -> Ending | None:
    """Return the outcome of an attempt whose submitter runs too long after its Ray job has ended.

    None if the Ray job has not ended or the grace period has not passed.
    """
    status, end = job.status, job.status.ray_job_info.end_time
    if status.job_status not in TERMINAL_JOB_STATES or end is None:
        return None
    if now < untrusted.bounded(end) + grace_period:
        return None
    has_failed = status.job_status == JobState.FAILED
    return Ending(
        state=DeploymentState.FAILED if has_failed else DeploymentState.COMPLETE,
        reason=FailureReason.GRACE_PERIOD,
        message="JobDeploymentStatus does not transition to Complete or Failed within the grace "
        "period after JobStatus reaches a terminal state.",
    )


def find_failed_status_checks(
    job: RayJob, now: datetime, timeout: timedelta = DEFAULT_STATUS_CHECK_TIMEOUT
) -> Ending | None:
    """Return the failure of an attempt whose dashboard has not answered for too long, or None."""
    since = job.status.job_status_check_failure_start_time
    if since is None:
        return None
    since = untrusted.bounded(since)
    if now < since + timeout:
        return None
    return failure(
        FailureReason.STATUS_CHECKS,
        f"Job status checks have been failing since {since:%Y-%m-%d %H:%M:%S}; "
        f"exceeded timeout of {int(timeout.total_seconds())}s",
    )


def _get_active_deadline(job: RayJob) -> datetime | None:
    if job.status.job_deployment_status not in _WITH_ACTIVE_DEADLINE:
        return None
    return _add_to_start(job, job.spec.active_deadline_seconds)


def _get_pre_running_deadline(job: RayJob) -> datetime | None:
    if job.status.job_deployment_status not in _BEFORE_RUNNING:
        return None
    return _add_to_start(job, job.spec.pre_running_deadline_seconds)


def _add_to_start(job: RayJob, seconds: int | None) -> datetime | None:
    start = job.status.start_time
    if start is None or seconds is None:
        return None
    return untrusted.bounded(start) + timedelta(seconds=seconds)
