"""Decide whether a new status is written (spec rayjob §5.4), and with which Events."""

from msgspec.structs import replace

from common.api.meta import MAX_MESSAGE_LENGTH, clipped
from common.api.ray_cluster import RayClusterStatus
from common.api.ray_job import DeploymentState, RayJobStatus
from common.runtime.actions import STATUS_REFUSED, Action, EmitEvent
from job_reconciler import events
from job_reconciler.actions import UpdateJobStatus
from job_reconciler.observed import Observed

_SHOWS_MESSAGE = frozenset(
    {
        DeploymentState.INITIALIZING,
        DeploymentState.VALIDATION_FAILED,
        DeploymentState.COMPLETE,
        DeploymentState.FAILED,
    }
)
"""States in which raybus writes the message of the status; in other states it comes from Ray."""


def update(observed: Observed, status: RayJobStatus) -> tuple[Action, ...]:
    """Return the actions that write a new status and report its change in Events.

    Empty if the new status is not worth a write. The Events follow the write, so that they report
    only what the stored status shows.
    """
    old = observed.job.status
    status = replace(
        status,
        observed_generation=observed.job.metadata.generation,
        message=clipped(status.message, MAX_MESSAGE_LENGTH),
    )
    if not is_changed(old, status):
        return ()
    told = (EmitEvent(event=event) for event in events.transitions(observed.job, status))
    return UpdateJobStatus(status=status, events=STATUS_REFUSED), *told


def is_changed(old: RayJobStatus, new: RayJobStatus) -> bool:
    """Return whether a new status differs enough from the old one to be written.

    Every write goes to all clients that watch RayJobs, so a change of only Ray's message and times
    is not written. A changed message of raybus is written: it tells why the job does not start, or
    why nothing is deleted after its end.
    """
    is_own_message = new.job_deployment_status in _SHOWS_MESSAGE or not new.job_status
    return (
        (old.job_status, old.job_deployment_status) != (new.job_status, new.job_deployment_status)
        or old.job_status_check_failure_start_time != new.job_status_check_failure_start_time
        or _drop_minor_fields(old.ray_cluster_status) != _drop_minor_fields(new.ray_cluster_status)
        or (is_own_message and _get_visible_texts(old) != _get_visible_texts(new))
    )


def _get_visible_texts(status: RayJobStatus) -> tuple[str, str]:
    return status.reason, status.message


def _drop_minor_fields(status: RayClusterStatus) -> RayClusterStatus:
    """Return a cluster's status without the fields whose change alone is not written."""
    ignored = RayClusterStatus()
    return replace(
        status,
        last_update_time=None,
        state_transition_times=None,
        observed_generation=0,
        desired_cpu=ignored.desired_cpu,
        desired_memory=ignored.desired_memory,
        desired_gpu=ignored.desired_gpu,
        desired_tpu=ignored.desired_tpu,
    )
