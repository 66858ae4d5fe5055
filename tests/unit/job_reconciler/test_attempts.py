"""The start, the end and the reset of an attempt (spec rayjob §6.1, §6.6, §11)."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common.api.ray_job import DeploymentState, JobState, RayJob, RayJobStatus
from job_reconciler import attempts
from job_reconciler.states import Ending, FailureReason, failure
from support.builders.ray_job import a_ray_job

NOW = datetime(2026, 8, 19, 9, 30, tzinfo=UTC)
EARLIER = "2026-08-19T09:00:00Z"
NAME = "train-bcdfg"
FAILED = failure(FailureReason.APPLICATION, "exit code 1")
COMPLETE = Ending(state=DeploymentState.COMPLETE)


def _running(status: dict[str, Any] | None = None, **spec: Any) -> RayJob:
    return a_ray_job(status={"jobDeploymentStatus": "Running", **(status or {})}, **spec)


@pytest.mark.parametrize(
    ("spec", "job_id", "cluster"),
    [
        ({}, NAME, NAME),
        ({"jobId": "mine"}, "mine", NAME),
        ({"submissionMode": "InteractiveMode"}, "", NAME),
        ({"submissionMode": "InteractiveMode", "jobId": "mine"}, "", NAME),
        ({"clusterSelector": {"ray.io/cluster": "shared"}}, NAME, "shared"),
    ],
)
def test_an_attempt_begins_with_its_names(spec: dict[str, Any], job_id: str, cluster: str) -> None:
    status = attempts.begin(a_ray_job(**spec), NAME, NOW)
    assert (status.job_id, status.ray_cluster_name) == (job_id, cluster)
    assert status.job_deployment_status == "Initializing"
    assert status.start_time == NOW
    assert (status.succeeded, status.failed) == (0, 0)


@pytest.mark.acceptance("rayjob", 30)
def test_the_first_status_has_the_empty_parts() -> None:
    written = msgspec.to_builtins(attempts.begin(a_ray_job(), NAME, NOW))
    assert written["rayJobInfo"] == {}
    assert written["rayClusterStatus"]["head"] == {}
    assert (written["succeeded"], written["failed"]) == (0, 0)
    assert "jobStatus" not in written


@pytest.mark.parametrize(("job_status", "succeeded"), [("SUCCEEDED", 1), ("STOPPED", 0)])
def test_only_a_success_counts_as_one(job_status: str, succeeded: int) -> None:
    status = attempts.finish(_running({"jobStatus": job_status}), COMPLETE, NOW)
    assert (status.succeeded, status.failed) == (succeeded, 0)
    assert status.job_deployment_status == "Complete"
    assert status.reason == ""
    assert status.end_time == NOW


@pytest.mark.parametrize(("failed", "state"), [(0, "Retrying"), (1, "Retrying"), (2, "Failed")])
def test_a_failure_is_retried_up_to_the_limit(failed: int, state: str) -> None:
    job = _running({"failed": failed}, backoffLimit=2)
    status = attempts.finish(job, FAILED, NOW)
    assert status.job_deployment_status == state
    assert status.failed == failed + 1
    assert (status.reason, status.message) == ("AppFailed", "exit code 1")
    assert status.end_time == (NOW if state == "Failed" else None)


def test_without_a_limit_nothing_is_retried() -> None:
    assert attempts.finish(_running(), FAILED, NOW).job_deployment_status == "Failed"
    zero = attempts.finish(_running(backoffLimit=0), FAILED, NOW)
    assert zero.job_deployment_status == "Failed"


@pytest.mark.acceptance("rayjob", 82)
@pytest.mark.parametrize("reason", [FailureReason.DEADLINE, FailureReason.STATUS_CHECKS])
def test_some_failures_are_final(reason: FailureReason) -> None:
    status = attempts.finish(
        _running({"jobStatus": "RUNNING"}, backoffLimit=2), failure(reason), NOW
    )
    assert status.job_deployment_status == "Failed"
    assert status.job_status == "RUNNING"
    assert (status.succeeded, status.failed) == (0, 1)


@pytest.mark.acceptance("rayjob", 86)
def test_a_deadline_before_running_is_retried() -> None:
    ending = failure(FailureReason.PRE_RUNNING_DEADLINE)
    assert attempts.finish(_running(backoffLimit=1), ending, NOW).job_deployment_status == (
        "Retrying"
    )


def test_a_repeated_end_is_counted_once() -> None:
    job = _running(backoffLimit=1)
    attempts.finish(job, FAILED, NOW)
    assert attempts.finish(job, FAILED, NOW).failed == 1
    assert job.status.failed is None


def test_an_ending_can_force_the_state_of_the_job() -> None:
    ending = msgspec.structs.replace(FAILED, job_state=JobState.FAILED)
    assert attempts.finish(_running({"jobStatus": "RUNNING"}), ending, NOW).job_status == "FAILED"


@pytest.mark.parametrize(("before", "after"), [("Suspending", "Suspended"), ("Retrying", "")])
def test_a_reset_keeps_the_counters_and_times(before: str, after: str) -> None:
    job = a_ray_job(
        status={
            "jobDeploymentStatus": before,
            "jobStatus": "FAILED",
            "jobId": NAME,
            "rayClusterName": NAME,
            "dashboardURL": "head:8265",
            "reason": "AppFailed",
            "message": "exit code 1",
            "startTime": EARLIER,
            "rayJobInfo": {"startTime": EARLIER},
            "rayClusterStatus": {"state": "ready"},
            "jobStatusCheckFailureStartTime": EARLIER,
            "failed": 1,
        }
    )
    assert attempts.reset(job.status) == RayJobStatus(
        job_deployment_status=after, start_time=job.status.start_time, failed=1
    )
