"""Read from a Kubernetes Job or a head pod how the submitter is doing (spec rayjob §10.3)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from common import pod_json
from common.api.opaque import Body
from job_reconciler.outcome import NO_SUBMITTER, Submitter

CONTAINER: Final = "ray-job-submitter"
MAX_RESTARTS: Final = 2
"""Restarts of a sidecar after which the submission has failed."""
T = TypeVar("T")


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    finished_at: datetime | None = None


class _State(msgspec.Struct, frozen=True, rename="camel"):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _State = _State()
    last_state: _State = _State()


def read_job(job: Body | None) -> Submitter:
    """Return the state of the submitter in a Kubernetes Job; None if the Job is absent."""
    if job is None:
        return NO_SUBMITTER
    conditions = _parse(pod_json.bodies(pod_json.body(job, "status"), "conditions"), _Condition)
    ended = [
        condition
        for condition in conditions
        if condition.type in {"Complete", "Failed"} and condition.status == "True"
    ]
    times = [each.last_transition_time for each in ended if each.last_transition_time is not None]
    failed = next((condition for condition in ended if condition.type == "Failed"), None)
    message = None
    if failed is not None:
        message = f"Job submission has failed. Reason: {failed.reason}. Message: {failed.message}"
    return Submitter(finished_at=min(times, default=None), failure_message=message)


def read_head_pod(pod: Body | None, *, restarts: bool) -> Submitter:
    """Return the state of the submitter in a head pod; None if there is no head pod.

    `restarts` is the gate SidecarSubmitterRestart, with which the kubelet restarts the container.
    """
    if pod is None:
        return NO_SUBMITTER
    statuses = _parse(
        pod_json.bodies(pod_json.body(pod, "status"), "containerStatuses"), _ContainerStatus
    )
    status = next((each for each in statuses if each.name == CONTAINER), None)
    if status is None:
        return Submitter()
    now, before = status.state.terminated, status.last_state.terminated
    has_succeeded = now is not None and now.exit_code == 0
    message = None
    if restarts:
        if before is not None and not has_succeeded and status.restart_count >= MAX_RESTARTS:
            message = (
                f"Ray head pod submitter container {CONTAINER} terminated after exceeding the "
                "maximum restart count"
            )
        elif not has_succeeded:
            return Submitter()  # the kubelet starts it again
    elif now is not None and now.exit_code != 0:
        message = (
            f"Ray head pod container {CONTAINER} terminated with exit code {now.exit_code}: "
            f"{now.reason}"
        )
    return Submitter(finished_at=now.finished_at if now else None, failure_message=message)


def _parse(bodies: Sequence[Body], kind: type[T]) -> list[T]:
    return [msgspec.convert(body, kind, strict=False) for body in bodies]
