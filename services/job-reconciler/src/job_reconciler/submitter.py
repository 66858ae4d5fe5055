"""Read the state of the submitter from a Kubernetes Job or a head pod (spec rayjob §10.3)."""

from typing import Final

from common.api.core import Job, Pod
from common.api.ray_job import SUBMITTER_CONTAINER
from job_reconciler.outcome import NO_SUBMITTER, Submitter

MAX_RESTARTS: Final = 2
"""Number of restarts of a submitter sidecar at which the submission counts as failed."""


def read_job(job: Job | None) -> Submitter:
    """Return the state of the submitter in a Kubernetes Job; absent if the Job does not exist."""
    if job is None:
        return NO_SUBMITTER
    ended = [
        condition
        for condition in job.status.conditions
        if condition.type in {"Complete", "Failed"} and condition.status == "True"
    ]
    times = [
        condition.last_transition_time
        for condition in ended
        if condition.last_transition_time is not None
    ]
    failed = next((condition for condition in ended if condition.type == "Failed"), None)
    message = None
    if failed is not None:
        message = f"Job submission has failed. Reason: {failed.reason}. Message: {failed.message}"
    return Submitter(finished_at=min(times, default=None), failure_message=message)


def read_head_pod(pod: Pod | None, *, restarts: bool) -> Submitter:
    """Return the state of the submitter in a head pod; absent if there is no head pod.

    `restarts` is the gate SidecarSubmitterRestart, with which the kubelet restarts the container.
    """
    if pod is None:
        return NO_SUBMITTER
    status = next(
        (status for status in pod.status.container_statuses if status.name == SUBMITTER_CONTAINER),
        None,
    )
    if status is None:
        return Submitter()
    now, before = status.state.terminated, status.last_state.terminated
    has_succeeded = now is not None and now.exit_code == 0
    message = None
    if restarts:
        if before is not None and not has_succeeded and status.restart_count >= MAX_RESTARTS:
            message = (
                f"Ray head pod submitter container {SUBMITTER_CONTAINER} terminated after "
                "exceeding the maximum restart count"
            )
        elif not has_succeeded:
            return Submitter()  # the kubelet starts it again
    elif now is not None and now.exit_code != 0:
        message = (
            f"Ray head pod container {SUBMITTER_CONTAINER} terminated with exit code "
            f"{now.exit_code}: {now.reason}"
        )
    return Submitter(finished_at=now.finished_at if now else None, failure_message=message)
