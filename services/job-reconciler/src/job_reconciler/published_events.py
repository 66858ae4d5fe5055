"""Derive the events for external consumers from the status of a RayJob; no I/O.

Every plan begins with the events of the recorded status. An event therefore reports only stored
facts. It is published before the next write can erase the state that it reports, so a crash loses
no event. The same status gives events with the same ids, so a new process may publish them again.
The end of a RayJob stays in its status, but its event is repeated for `REPEATED_FOR` only.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from common.api.ray_job import DeploymentState, JobState, RayJobStatus
from common.ray import job_events
from common.ray.job_events import JobAttempt, JobEventData
from common.runtime.actions import Publish
from common.untrusted import clipped
from job_reconciler.observed import Observed
from job_reconciler.states import FailureReason

REPEATED_FOR: Final = timedelta(hours=1)
"""How long after the end of a RayJob a new process publishes that end again.

It is longer than a restart and most outages. Without the limit, each new process would publish the
end of every RayJob that still exists, however long ago it ended.
"""
HAS_RUN: Final = frozenset({JobState.RUNNING, JobState.SUCCEEDED})
OWN_TEXTS: Final = frozenset(
    {
        FailureReason.DEADLINE,
        FailureReason.PRE_RUNNING_DEADLINE,
        FailureReason.GRACE_PERIOD,
        FailureReason.STATUS_CHECKS,
    }
)
"""Failures whose message raybus writes; other messages quote Ray, the job or Kubernetes."""


def of_status(observed: Observed) -> Iterator[Publish]:
    """Yield the events that follow from the recorded status of a RayJob."""
    job, now = observed.job, observed.now
    status, attempt = job.status, job_events.find_attempt(job)
    if attempt is None:
        return
    match observed.state:
        case DeploymentState.INITIALIZING:
            data = job_events.JobSubmitted(
                attempt=attempt, max_attempts=job_events.count_max_attempts(job)
            )
            yield Publish(data=data, at=attempt.started)
        case DeploymentState.RUNNING:
            yield from _build_running_events(attempt, status, now)
        case DeploymentState.RETRYING:
            yield Publish(data=_build_retry_data(attempt, status), at=now)
        case DeploymentState.SUSPENDING:
            yield Publish(data=job_events.JobSuspended(attempt=attempt), at=now)
        case DeploymentState.COMPLETE | DeploymentState.FAILED:
            end = status.end_time
            if end is not None and now - end <= REPEATED_FOR:
                yield from _build_running_events(attempt, status, now)
                yield Publish(data=_build_end_data(attempt, status), at=end)
        case _:
            return


def deleted(observed: Observed) -> Iterator[Publish]:
    """Yield the event that must be published before a deleted RayJob is gone.

    Nothing is published about a RayJob that never began an attempt.
    """
    job, attempt = observed.job, job_events.find_attempt(observed.job)
    if attempt is not None:
        state = clipped(job.status.job_deployment_status, job_events.MAX_NAME)
        data = job_events.JobDeleted(attempt=attempt, state=state)
        yield Publish(data=data, at=job.metadata.deletion_timestamp or observed.now)


def _build_running_events(
    attempt: JobAttempt, status: RayJobStatus, now: datetime
) -> Iterator[Publish]:
    if status.job_status in HAS_RUN:
        at = status.ray_job_info.start_time or now
        yield Publish(data=job_events.JobRunning(attempt=attempt), at=at)


def _build_end_data(attempt: JobAttempt, status: RayJobStatus) -> JobEventData:
    seconds = None
    if status.end_time is not None:
        seconds = max(int((status.end_time - attempt.started).total_seconds()), 0)
    if status.job_deployment_status == DeploymentState.COMPLETE:
        match status.job_status:
            case JobState.SUCCEEDED:
                return job_events.JobSucceeded(attempt=attempt, duration_seconds=seconds)
            case JobState.STOPPED:
                return job_events.JobStopped(attempt=attempt, duration_seconds=seconds)
            case _:
                pass
    return job_events.JobFailed(
        attempt=attempt,
        reason=clipped(status.reason, job_events.MAX_NAME),
        message=_get_own_message(status),
        exit_code=job_events.parse_exit_code(status.message),
        duration_seconds=seconds,
    )


def _build_retry_data(attempt: JobAttempt, status: RayJobStatus) -> JobEventData:
    return job_events.JobRetried(
        attempt=attempt,
        reason=clipped(status.reason, job_events.MAX_NAME),
        message=_get_own_message(status),
        exit_code=job_events.parse_exit_code(status.message),
    )


def _get_own_message(status: RayJobStatus) -> str:
    return clipped(status.message, job_events.MAX_MESSAGE) if status.reason in OWN_TEXTS else ""
