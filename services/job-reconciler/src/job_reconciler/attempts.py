"""The RayJob's status at the start and at the end of an attempt (spec rayjob §6.1, §6.6, §11).

An attempt is one run of the job on one RayCluster; `backoffLimit` allows further attempts.
"""

from datetime import datetime
from typing import Final

import msgspec

from common import labels
from common.api.meta import whole_seconds
from common.api.ray_cluster import RayClusterStatus
from common.api.ray_job import (
    DeploymentState,
    JobState,
    RayJob,
    RayJobStatus,
    RayJobStatusInfo,
    SubmissionMode,
)
from job_reconciler.states import Ending, FailureReason

FINAL_REASONS: Final = frozenset({FailureReason.DEADLINE, FailureReason.STATUS_CHECKS})
"""Failures after which no further attempt starts, whatever `backoffLimit` allows."""


def begin(job: RayJob, new_name: str, now: datetime) -> RayJobStatus:
    """Return the status of a new attempt, before any object of the attempt exists.

    `new_name` becomes the name of the RayCluster and the ID of the Ray job, unless the spec sets
    them.
    """
    spec, status = job.spec, job.status
    selected = (spec.cluster_selector or {}).get(labels.CLUSTER)
    job_id = "" if spec.submission_mode == SubmissionMode.INTERACTIVE else spec.job_id or new_name
    return msgspec.structs.replace(
        status,
        job_id=status.job_id or job_id,
        ray_cluster_name=status.ray_cluster_name or selected or new_name,
        job_status=JobState.UNKNOWN.value,
        job_deployment_status=DeploymentState.INITIALIZING.value,
        start_time=whole_seconds(now),
        succeeded=status.succeeded or 0,
        failed=status.failed or 0,
    )


def finish(job: RayJob, ending: Ending, now: datetime) -> RayJobStatus:
    """Return the status after an attempt: the end of the RayJob, or a retry.

    The counters start from the status in `job`, so a repeated reconcile counts the attempt once.
    """
    status = job.status
    has_failed = ending.state == DeploymentState.FAILED
    failed = (status.failed or 0) + has_failed
    job_state = status.job_status if ending.job_state is None else ending.job_state.value
    has_succeeded = not has_failed and job_state == JobState.SUCCEEDED
    retries = job.spec.backoff_limit
    is_retried = (
        has_failed
        and retries is not None
        and failed <= retries
        and ending.reason not in FINAL_REASONS
    )
    return msgspec.structs.replace(
        status,
        job_deployment_status=(DeploymentState.RETRYING if is_retried else ending.state).value,
        job_status=job_state,
        reason="" if ending.reason is None else ending.reason.value,
        message=status.message if ending.message is None else ending.message,
        end_time=status.end_time if is_retried else whole_seconds(now),
        succeeded=(status.succeeded or 0) + has_succeeded,
        failed=failed,
    )


def reset(status: RayJobStatus) -> RayJobStatus:
    """Return the status after the objects of an attempt are gone.

    A RayJob in state Suspending becomes Suspended, and a RayJob that is retried becomes New. The
    counters and times remain.
    """
    is_suspending = status.job_deployment_status == DeploymentState.SUSPENDING
    state = DeploymentState.SUSPENDED if is_suspending else DeploymentState.NEW
    return msgspec.structs.replace(
        status,
        job_deployment_status=state.value,
        job_status=JobState.UNKNOWN.value,
        job_id="",
        ray_cluster_name="",
        dashboard_url="",
        reason="",
        message="",
        ray_job_info=RayJobStatusInfo(),
        ray_cluster_status=RayClusterStatus(),
        job_status_check_failure_start_time=None,
    )
