"""The attempts of a RayJob: from its events and its status, and from the status alone."""

from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from common.api import ray_job
from common.api.meta import rfc3339
from common.api.ray_job import RayJob
from common.bus.cloud_events import CloudEvent
from common.ray import job_events as je
from common.ray.job_events import JobAttempt, JobEventData
from raybus_cli.events import attempts
from raybus_cli.events.attempts import Attempt, AttemptResult
from support import job_events as jobs
from support.upgrade_events import START

UID: Final = "u1"
NOW: Final = START + timedelta(seconds=1000)


def a_job(state: str, *, started: int = 200, **status: Any) -> RayJob:
    shown = {
        "jobDeploymentStatus": state,
        "startTime": rfc3339(START + timedelta(seconds=started)),
        "rayClusterName": "train-b",
        "jobId": "train-b",
        **status,
    }
    return ray_job.decode(
        {"metadata": {"name": "train", "namespace": "a", "uid": UID}, "spec": {}, "status": shown}
    )


def an_attempt(number: int, started: int, cluster: str, uid: str = UID) -> JobAttempt:
    began = START + timedelta(seconds=started)
    return JobAttempt(
        id=je.identify_attempt(uid, began, number),
        number=number,
        started=began,
        cluster=cluster,
        submission_id=cluster,
    )


def an_event(data: JobEventData, seconds: float) -> CloudEvent[JobEventData]:
    event = jobs.a_job_event(data, seconds=seconds)
    return je.FAMILY.decode(je.FAMILY.encode(event).payload)


FIRST: Final = an_attempt(1, 0, "train-a")
SECOND: Final = an_attempt(2, 200, "train-b")
RETRIED: Final = (
    an_event(je.JobSubmitted(attempt=FIRST, max_attempts=2), 0),
    an_event(je.JobRunning(attempt=FIRST), 30),
    an_event(je.JobRetried(attempt=FIRST, reason="AppFailed", exit_code=137), 150),
    an_event(je.JobSubmitted(attempt=SECOND, max_attempts=2), 200),
)
FAILED_FIRST: Final = Attempt(
    attempt=1,
    result=AttemptResult.FAILED,
    began=START,
    ended=START + timedelta(seconds=150),
    seconds=150,
    cluster="train-a",
    job_id="train-a",
    reason="AppFailed",
    exit_code=137,
)


def test_a_failed_attempt_comes_from_events_and_the_present_one_from_the_status() -> None:
    job = a_job("Running", jobStatus="RUNNING", failed=1)
    first, second = attempts.build(job, RETRIED, now=NOW)
    assert first == FAILED_FIRST
    assert (second.attempt, second.result, second.cluster) == (2, AttemptResult.RUNNING, "train-b")
    assert (second.ended, second.seconds) == (None, 800)


def test_without_events_the_status_shows_the_last_attempt() -> None:
    end = START + timedelta(seconds=500)
    job = a_job("Complete", jobStatus="SUCCEEDED", failed=1, succeeded=1, endTime=rfc3339(end))
    assert attempts.build(job, (), now=NOW) == [
        Attempt(
            attempt=2,
            result=AttemptResult.SUCCEEDED,
            began=START + timedelta(seconds=200),
            ended=end,
            seconds=300,
            cluster="train-b",
            job_id="train-b",
        )
    ]


def test_an_earlier_job_of_this_name_is_left_out() -> None:
    earlier = an_attempt(1, -900, "train-z", uid="u0")
    events = (an_event(je.JobSubmitted(attempt=earlier, max_attempts=1), 0), *RETRIED)
    shown = attempts.build(a_job("Running", failed=1), events, now=NOW)
    assert [entry.cluster for entry in shown] == ["train-a", "train-b"]


def test_the_end_of_a_suspended_attempt_comes_from_its_event() -> None:
    attempt = an_attempt(1, 200, "train-b")
    events = (
        an_event(je.JobSubmitted(attempt=attempt, max_attempts=1), 200),
        an_event(je.JobSuspended(attempt=attempt), 260),
    )
    job = a_job("Suspended", rayClusterName="", jobId="")
    (shown,) = attempts.build(job, events, now=NOW)
    assert (shown.result, shown.seconds, shown.cluster) == (AttemptResult.SUSPENDED, 60, "train-b")
    (alone,) = attempts.build(job, (), now=NOW)
    assert (alone.result, alone.ended, alone.seconds) == (AttemptResult.SUSPENDED, None, None)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"jobDeploymentStatus": "Initializing"}, AttemptResult.STARTING),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, AttemptResult.STOPPED),
        ({"jobDeploymentStatus": "Failed", "failed": 1}, AttemptResult.FAILED),
        ({"jobDeploymentStatus": "Retrying", "failed": 1}, AttemptResult.FAILED),
    ],
)
def test_the_result_follows_from_the_status(
    status: dict[str, Any], expected: AttemptResult
) -> None:
    (shown,) = attempts.build(a_job("", **status), (), now=NOW)
    assert (shown.attempt, shown.result) == (1, expected)


def test_a_job_that_has_not_begun_has_no_attempts() -> None:
    assert attempts.build(a_job("", startTime=None), (), now=NOW) == []


def test_every_event_but_the_first_has_a_result() -> None:
    assert set(attempts.RESULT_BY_EVENT) == set(je.KINDS.values()) - {je.JobSubmitted}


def test_the_table_has_a_row_for_each_attempt() -> None:
    shown = attempts.build(a_job("Running", failed=1), RETRIED, now=NOW)
    lines = attempts.build_table(shown, wide=True).format_lines(200)
    assert [line.split() for line in lines[1:]] == [
        [
            *("1", "Failed", "2026-01-01T12:00:00Z", "2026-01-01T12:02:30Z", "2m30s", "train-a"),
            *("AppFailed,", "exit", "code", "137", "train-a"),
        ],
        ["2", "Running", "2026-01-01T12:03:20Z", "-", "13m", "train-b", "-", "train-b"],
    ]


def test_attempts_are_written_as_json_with_camel_case() -> None:
    shown = msgspec.to_builtins(FAILED_FIRST)
    assert shown["result"] == "Failed"
    assert (shown["jobId"], shown["exitCode"]) == ("train-a", 137)
