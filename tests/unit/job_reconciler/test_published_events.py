"""The events that follow from the status of a RayJob, also from a status that a user wrote."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jsonschema
import msgspec
import pytest

from common.api import ray_job
from common.api.meta import rfc3339
from common.bus.cloud_events import Event
from common.ray import job_events
from job_reconciler import published_events
from job_reconciler.observed import Observed
from job_reconciler.published_events import REPEATED_FOR
from job_reconciler.settings import Config
from support import event_docs

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
MAX_PAYLOAD: Final = 4096
"""Bytes of the largest event: five names, a reason and a message, in JSON, and the attributes."""
SECRET: Final = "password=hunter2"


def observe(state: str, *, deleted: bool = False, **status: Any) -> Observed:
    began = rfc3339(NOW - timedelta(minutes=5))
    shown = {"jobDeploymentStatus": state, "startTime": began, **status}
    meta = {"name": "train", "namespace": "a", "uid": "u"}
    if deleted:
        meta["deletionTimestamp"] = rfc3339(NOW)
    job = ray_job.decode({"metadata": meta, "spec": {}, "status": shown})
    return Observed(job=job, config=Config(), now=NOW)


def list_kinds(observed: Observed) -> list[str]:
    return [action.data.kind for action in published_events.of_status(observed)]


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("", {}, []),
        ("Initializing", {}, ["job-submitted"]),
        ("Waiting", {}, []),
        ("Running", {}, []),
        ("Running", {"jobStatus": "PENDING"}, []),
        ("Running", {"jobStatus": "RUNNING"}, ["job-running"]),
        ("Running", {"jobStatus": "SUCCEEDED"}, ["job-running"]),
        ("Retrying", {"failed": 1}, ["job-retried"]),
        ("Suspending", {}, ["job-suspended"]),
        ("Suspended", {}, []),
        ("ValidationFailed", {}, []),
        ("SomethingNew", {}, []),
    ],
)
def test_the_state_decides_which_events_are_due(
    state: str, status: dict[str, Any], expected: list[str]
) -> None:
    assert list_kinds(observe(state, **status)) == expected


@pytest.mark.parametrize(
    ("state", "job_status", "expected"),
    [
        ("Complete", "SUCCEEDED", ["job-running", "job-succeeded"]),
        ("Complete", "STOPPED", ["job-stopped"]),
        ("Complete", "FAILED", ["job-failed"]),
        ("Failed", "FAILED", ["job-failed"]),
        ("Failed", "RUNNING", ["job-running", "job-failed"]),
        ("Failed", "", ["job-failed"]),
    ],
)
def test_the_end_is_due_for_a_while(state: str, job_status: str, expected: list[str]) -> None:
    recent, old = NOW - REPEATED_FOR, NOW - REPEATED_FOR - timedelta(seconds=1)
    assert list_kinds(observe(state, jobStatus=job_status, endTime=rfc3339(recent))) == expected
    assert list_kinds(observe(state, jobStatus=job_status, endTime=rfc3339(old))) == []
    assert list_kinds(observe(state, jobStatus=job_status)) == []


def test_a_repeated_event_has_the_same_id_and_data() -> None:
    observed = observe("Retrying", failed=1, reason="AppFailed")
    later = msgspec.structs.replace(observed, now=NOW + timedelta(minutes=10))
    first, again = (next(published_events.of_status(each)) for each in (observed, later))
    assert (first.id, first.data) == (again.id, again.data)


def test_attempts_differ_by_start_and_number() -> None:
    began = rfc3339(NOW - timedelta(minutes=1))
    attempts = [
        observe("Initializing"),
        observe("Initializing", failed=1),
        observe("Initializing", startTime=began),
    ]
    ids = [next(published_events.of_status(observed)).id for observed in attempts]
    assert len(set(ids)) == len(ids)


def test_the_failed_attempt_is_not_counted_twice() -> None:
    running, retrying = observe("Initializing", failed=1), observe("Retrying", failed=2)
    series = {next(published_events.of_status(each)).data.series for each in (running, retrying)}
    assert len(series) == 1


@pytest.mark.parametrize("reason", ["AppFailed", "SubmissionFailed", "", "DeadlineExceeded"])
@pytest.mark.parametrize("state", ["Failed", "Retrying"])
def test_a_text_of_the_job_is_in_no_event(state: str, reason: str) -> None:
    end = rfc3339(NOW)
    observed = observe(state, reason=reason, message=f"exit code 3: {SECRET}", endTime=end)
    (action,) = published_events.of_status(observed)
    has_text = SECRET.encode() in msgspec.json.encode(action.data)
    assert has_text == (reason == "DeadlineExceeded")  # a text that raybus writes


@pytest.mark.parametrize(
    "status",
    [
        {"failed": -5},
        {"failed": 2**62},
        {"message": "x" * 100_000, "reason": "DeadlineExceeded"},
        {"reason": "\x1b[31m" + "r" * 10_000},
        {"rayClusterName": "\u2028" * 253, "jobId": "\x01" * 253},
        {"endTime": rfc3339(NOW - timedelta(days=1)), "startTime": rfc3339(NOW)},
    ],
)
@pytest.mark.parametrize("state", ["Initializing", "Failed", "Retrying", "Suspending"])
def test_a_status_that_a_user_wrote_gives_bounded_and_valid_events(
    state: str, status: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"endTime": rfc3339(NOW), **status}
    observed = observe(state, **fields)
    for action in (*published_events.of_status(observed), *published_events.deleted(observed)):
        event = Event(namespace="a", name="train", id=action.id, time=action.at, data=action.data)
        payload = job_events.FAMILY.encode(event).payload
        assert len(payload) <= MAX_PAYLOAD
        schema = event_docs.schema(action.data.kind)
        validator: Any = jsonschema.Draft202012Validator(schema)
        validator.validate(msgspec.json.decode(payload))


def test_a_deletion_is_published_once_an_attempt_has_begun() -> None:
    (action,) = published_events.deleted(observe("Complete", deleted=True))
    assert (action.data.kind, action.at) == ("job-deleted", NOW)
    assert list(published_events.deleted(observe("", startTime=None, deleted=True))) == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Job entrypoint command failed with exit code 1, last available logs:\nx", 1),
        ("Job entrypoint command failed with exit code 137.", 137),
        ("failed with exit code -9", -9),
        ("failed with exit code of sorts", None),
        ("Job failed\nexit code 3", None),
        ("exit code ", None),
        ("exit code ٣", None),
        ("", None),
    ],
)
def test_the_exit_code_is_in_the_first_line_of_rays_message(
    message: str, expected: int | None
) -> None:
    assert job_events.parse_exit_code(message) == expected
