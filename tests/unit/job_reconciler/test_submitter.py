"""The state of the submitter (spec rayjob §10.3)."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common.api.core import Job, Pod
from common.api.opaque import Json
from job_reconciler import submitter
from job_reconciler.outcome import NO_SUBMITTER, Submitter

TIME = "2026-08-19T09:30:00Z"
MOMENT = datetime(2026, 8, 19, 9, 30, tzinfo=UTC)
EXHAUSTED = (
    "Ray head pod submitter container ray-job-submitter terminated after exceeding the maximum "
    "restart count"
)


def _condition(kind: str, status: str = "True") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit",
        "lastTransitionTime": TIME,
    }


def _job(*conditions: Json) -> Job:
    body = {"metadata": {"name": "sum"}, "status": {"conditions": list(conditions)}}
    return msgspec.convert(body, Job, strict=False)


def _terminated(exit_code: int) -> Json:
    return {"terminated": {"exitCode": exit_code, "reason": "Error", "finishedAt": TIME}}


def _pod(*statuses: Json) -> Pod:
    body = {"metadata": {"name": "head"}, "status": {"containerStatuses": list(statuses)}}
    return msgspec.convert(body, Pod, strict=False)


def _sidecar(**status: Any) -> Pod:
    return _pod(
        {"name": "ray-head", "state": _terminated(1)}, {"name": "ray-job-submitter", **status}
    )


@pytest.mark.parametrize(
    "job",
    [
        _job(),
        _job(_condition("FailureTarget")),
        _job(_condition("Failed", "False"), _condition("Complete", "False")),
        _job(_condition("Suspended")),
    ],
)
def test_a_job_without_an_end_goes_on(job: Job) -> None:
    assert submitter.read_job(job) == Submitter()


def test_a_complete_job_has_submitted() -> None:
    job = _job(_condition("SuccessCriteriaMet"), _condition("Complete"))
    assert submitter.read_job(job) == Submitter(finished_at=MOMENT)


def test_a_failed_job_says_why() -> None:
    job = _job(_condition("FailureTarget"), _condition("Failed"))
    assert submitter.read_job(job) == Submitter(
        finished_at=MOMENT,
        failure_message="Job submission has failed. Reason: BackoffLimitExceeded. Message: Job has "
        "reached the specified backoff limit",
    )


def test_an_absent_object_has_no_submitter() -> None:
    assert submitter.read_job(None) == NO_SUBMITTER
    assert submitter.read_head_pod(None, restarts=False) == NO_SUBMITTER


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    "pod", [_pod(), _sidecar(), _sidecar(state={"running": {"startedAt": TIME}})]
)
def test_a_sidecar_without_an_end_goes_on(pod: Pod, restarts: bool) -> None:
    assert submitter.read_head_pod(pod, restarts=restarts) == Submitter()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_sidecar_that_exits_with_zero_has_submitted(restarts: bool) -> None:
    pod = _sidecar(state=_terminated(0))
    assert submitter.read_head_pod(pod, restarts=restarts) == Submitter(finished_at=MOMENT)


def test_a_sidecar_that_fails_says_why() -> None:
    assert submitter.read_head_pod(_sidecar(state=_terminated(137)), restarts=False) == Submitter(
        finished_at=MOMENT,
        failure_message="Ray head pod container ray-job-submitter terminated with exit code 137: "
        "Error",
    )


@pytest.mark.acceptance("rayjob", 64)
def test_a_sidecar_is_restarted_twice() -> None:
    def read(count: int, **states: Json) -> Submitter:
        return submitter.read_head_pod(_sidecar(restartCount=count, **states), restarts=True)

    assert read(0, state=_terminated(1)) == Submitter()
    assert read(1, lastState=_terminated(1)) == Submitter()
    assert read(1, state=_terminated(1), lastState=_terminated(1)) == Submitter()
    assert read(2, lastState=_terminated(1)) == Submitter(failure_message=EXHAUSTED)
    assert read(3, state=_terminated(0), lastState=_terminated(1)) == Submitter(finished_at=MOMENT)
