"""The state of a RayJob, its attempts and its duration."""

from datetime import UTC, datetime

import pytest

from raybus_cli.show import job_report as reports
from support.builders.ray_job import a_ray_job

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("deployment", "ray", "has_ended", "has_succeeded"),
    [
        ("", "", False, False),
        ("Initializing", "", False, False),
        ("Running", "SUCCEEDED", False, False),
        ("Retrying", "FAILED", False, False),
        ("Suspended", "", False, False),
        ("Complete", "SUCCEEDED", True, True),
        ("Complete", "STOPPED", True, False),
        ("Failed", "FAILED", True, False),
        ("Failed", "SUCCEEDED", True, False),
        ("ValidationFailed", "", True, False),
    ],
)
def test_only_a_completed_job_that_ray_calls_succeeded_has_succeeded(
    deployment: str, ray: str, has_ended: bool, has_succeeded: bool
) -> None:
    job = a_ray_job(status={"jobDeploymentStatus": deployment, "jobStatus": ray})
    report = reports.build(job, NOW)
    assert (report.has_ended, report.has_succeeded) == (has_ended, has_succeeded)
    assert bool(reports.describe_pending(report)) is not has_ended


@pytest.mark.parametrize(
    ("status", "attempts"),
    [
        ({}, 0),
        ({"jobDeploymentStatus": "Initializing"}, 1),
        ({"jobDeploymentStatus": "Retrying", "failed": 1}, 1),
        ({"jobDeploymentStatus": "Running", "failed": 1}, 2),
        ({"jobDeploymentStatus": "Failed", "failed": 3}, 3),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "succeeded": 1}, 1),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, 1),
    ],
)
def test_every_attempt_counts_once(status: dict[str, object], attempts: int) -> None:
    assert reports.build(a_ray_job(status=status), NOW).attempts == attempts


def test_the_duration_ends_with_the_job() -> None:
    status = {"jobDeploymentStatus": "Running", "startTime": "2026-01-01T00:00:00Z"}
    assert reports.build(a_ray_job(status=status), NOW).seconds == 60
    ended = {**status, "jobDeploymentStatus": "Failed", "endTime": "2026-01-01T00:00:07Z"}
    assert reports.build(a_ray_job(status=ended), NOW).seconds == 7


def test_the_line_says_why_a_job_failed() -> None:
    status = {
        "jobDeploymentStatus": "Failed",
        "jobStatus": "FAILED",
        "reason": "AppFailed",
        "message": "exit\ncode 1",
    }
    line = "RayJob ns/train Failed: FAILED: AppFailed: exit code 1"
    assert reports.build(a_ray_job(status=status), NOW).line == line
