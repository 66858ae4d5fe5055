"""The deadlines of an attempt (spec rayjob §10)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.api.ray_job import DeploymentState, RayJob
from job_reconciler import deadlines
from job_reconciler.states import FailureReason
from support.builders.ray_job import a_ray_job

START = datetime(2026, 8, 19, 9, 21, 52, tzinfo=UTC)


def _job(state: str, *, is_started: bool = True, **limits: Any) -> RayJob:
    started = {"startTime": START.isoformat()} if is_started else {}
    return a_ray_job(status={"jobDeploymentStatus": state, **started}, **limits)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.acceptance("rayjob", 81)
@pytest.mark.parametrize("state", ["Initializing", "Running"])
def test_the_active_deadline_ends_an_attempt(state: str) -> None:
    job = _job(state, activeDeadlineSeconds=5)
    assert deadlines.next_deadline(job) == _at(5)
    assert deadlines.find_passed_deadline(job, _at(4.9)) is None
    ending = deadlines.find_passed_deadline(job, _at(5))
    assert ending is not None
    assert ending.state == DeploymentState.FAILED
    assert ending.reason == FailureReason.DEADLINE
    assert ending.job_state is None
    assert ending.message == (
        "The RayJob has passed the activeDeadlineSeconds. StartTime: 2026-08-19 09:21:52 +0000 "
        "UTC. ActiveDeadlineSeconds: 5"
    )


@pytest.mark.acceptance("rayjob", 85)
@pytest.mark.parametrize("state", ["Initializing", "Waiting"])
def test_the_deadline_before_running_ends_an_attempt(state: str) -> None:
    job = _job(state, preRunningDeadlineSeconds=60)
    assert deadlines.next_deadline(job) == _at(60)
    assert deadlines.find_passed_deadline(job, _at(59.9)) is None
    ending = deadlines.find_passed_deadline(job, _at(60))
    assert ending is not None
    assert ending.reason == FailureReason.PRE_RUNNING_DEADLINE
    assert ending.message == (
        "The RayJob has passed the preRunningDeadlineSeconds. StartTime: 2026-08-19 09:21:52 "
        "+0000 UTC. PreRunningDeadlineSeconds: 60"
    )


def test_the_active_deadline_counts_more() -> None:
    job = _job("Initializing", activeDeadlineSeconds=60, preRunningDeadlineSeconds=5)
    assert deadlines.next_deadline(job) == _at(5)
    ending = deadlines.find_passed_deadline(job, _at(60))
    assert ending is not None
    assert ending.reason == FailureReason.DEADLINE


@pytest.mark.parametrize(
    ("state", "limits"),
    [
        ("Running", {"preRunningDeadlineSeconds": 5}),
        ("Waiting", {"activeDeadlineSeconds": 5}),
        ("Suspending", {"activeDeadlineSeconds": 5, "preRunningDeadlineSeconds": 5}),
        ("Complete", {"activeDeadlineSeconds": 5, "preRunningDeadlineSeconds": 5}),
        ("Running", {}),
    ],
)
def test_a_deadline_has_its_states(state: str, limits: dict[str, Any]) -> None:
    job = _job(state, **limits)
    assert deadlines.next_deadline(job) is None
    assert deadlines.find_passed_deadline(job, _at(3600)) is None


def test_an_attempt_that_has_not_started_has_no_deadline() -> None:
    job = _job("Running", is_started=False, activeDeadlineSeconds=5)
    assert deadlines.find_passed_deadline(job, _at(3600)) is None
