"""The jobs of the page: the data that it receives, and what it shows if they cannot be read."""

from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec
import pytest

from common import errors
from common.api.opaque import Body, Json
from common.api.ray_job import RayJob
from common.kube.client import KubeClient
from common.kube.resources import RAY_CRON_JOB, RAY_JOB
from raybus_cli import session
from raybus_cli.show import job_report
from raybus_cli.show.job_report import JobReport
from raybus_dashboard import jobs
from raybus_dashboard.board import Board, PageFeed, PageSources
from raybus_dashboard.history import EventLog, History
from raybus_dashboard.jobs import ShownJobs
from raybus_dashboard.listing import SharedListing
from raybus_dashboard.polling import Poller
from support.builders.ray_job import FAILED_JOB, a_cluster_spec
from support.fakes.kube import FakeKube

NOW: Final = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
RUNNING: Final[Json] = {
    "jobDeploymentStatus": "Running",
    "jobStatus": "RUNNING",
    "startTime": "2026-01-01T10:00:00Z",
}
COMPLETE: Final[Json] = {
    **RUNNING,
    "jobDeploymentStatus": "Complete",
    "jobStatus": "SUCCEEDED",
    "succeeded": 1,
    "endTime": "2026-01-01T10:05:00Z",
}


def a_job(name: str, status: Json, *, hour: int = 9, **meta: Any) -> Body:
    created = f"2026-01-01T{hour:02}:00:00Z"
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created, **meta},
        "spec": {
            "entrypoint": "python a.py",
            "backoffLimit": 1,
            "rayClusterSpec": a_cluster_spec(),
        },
        "status": status,
    }


def a_cron_job(**spec: Any) -> Body:
    template = {"entrypoint": "python a.py", "rayClusterSpec": a_cluster_spec()}
    created = "2026-01-01T09:00:00Z"
    return {
        "metadata": {"name": "hourly", "namespace": "default", "creationTimestamp": created},
        "spec": {"schedule": "0 * * * *", "jobTemplate": template, **spec},
        "status": {"lastScheduleTime": "2026-01-01T10:00:00Z"},
    }


def a_list(*items: Body) -> bytes:
    return msgspec.json.encode({"items": items})


def show(*items: Body, cron_jobs: tuple[Body, ...] = (), now: datetime = NOW) -> ShownJobs:
    return jobs.build_jobs(a_list(*items), a_list(*cron_jobs), now=now)


def test_jobs_have_a_tone_by_their_end_and_come_newest_first() -> None:
    shown = show(
        a_job("old", COMPLETE, hour=7),
        a_job("failed", {**FAILED_JOB, "failed": 2}, hour=8),
        a_job("runs", RUNNING),
        a_job("new", {}, hour=10),
        a_job("stopped", {**COMPLETE, "jobStatus": "STOPPED"}, hour=6),
        a_job("going", RUNNING, hour=5, deletionTimestamp="2026-01-01T10:29:00Z"),
    )
    assert [(job.name, job.status, job.tone) for job in shown.jobs] == [
        ("new", "New", "busy"),
        ("runs", "Running", "busy"),
        ("failed", "Failed", "bad"),
        ("old", "Complete", "good"),
        ("stopped", "Complete", "bad"),
        ("going", "Deleting", "busy"),
    ]
    failed = shown.jobs[2]
    assert (failed.attempts, failed.max_attempts, failed.reason) == (2, 2, "AppFailed")
    assert failed.ended is not None
    assert shown.jobs[1].ended is None


def test_a_cron_job_has_its_next_run() -> None:
    (cron_job,) = show(cron_jobs=(a_cron_job(),)).cron_jobs
    assert (cron_job.status, cron_job.tone) == ("Active", "good")
    assert cron_job.next_run == NOW.replace(hour=11, minute=0)
    (invalid,) = show(cron_jobs=(a_cron_job(schedule="x"),)).cron_jobs
    assert (invalid.status, invalid.tone, invalid.next_run) == ("Invalid", "bad", None)
    assert "invalid cron schedule" in invalid.problem
    (idle,) = show(cron_jobs=(a_cron_job(suspend=True),)).cron_jobs
    assert (idle.status, idle.tone, idle.next_run) == ("Suspended", "busy", None)


def test_time_alone_changes_nothing() -> None:
    items, cron_jobs = (a_job("runs", RUNNING), a_job("old", COMPLETE)), (a_cron_job(),)
    later = NOW.replace(minute=45)
    assert show(*items, cron_jobs=cron_jobs) == show(*items, cron_jobs=cron_jobs, now=later)


def test_an_object_that_cannot_be_read_hides_no_other() -> None:
    bad = a_job("bad", {"failed": "many"})
    bad_cron_job = a_cron_job() | {"status": {"lastScheduleTime": "yesterday"}}
    shown = show(bad, a_job("runs", RUNNING), cron_jobs=(bad_cron_job, a_cron_job()))
    assert sorted((job.name, job.status) for job in shown.jobs) == [
        ("bad", "Unreadable"),
        ("runs", "Running"),
    ]
    assert [cron_job.status for cron_job in shown.cron_jobs] == ["Unreadable", "Active"]


def test_any_fault_of_one_object_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    build = job_report.build

    def fail_for_bad(job: RayJob, now: datetime) -> JobReport:
        if job.metadata.name == "bad":
            raise TypeError("a fault of the program")
        return build(job, now)

    monkeypatch.setattr(job_report, "build", fail_for_bad)
    shown = show(a_job("bad", RUNNING), a_job("runs", RUNNING, hour=8))
    assert [(job.name, job.status) for job in shown.jobs] == [
        ("bad", "Unreadable"),
        ("runs", "Running"),
    ]


def test_old_jobs_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 2)
    shown = show(*(a_job(f"job-{hour}", RUNNING, hour=hour) for hour in range(5)))
    assert ([job.name for job in shown.jobs], shown.omitted) == (["job-4", "job-3"], 3)


@pytest.mark.parametrize("field", ["message", "reason"])
def test_a_text_of_a_tenant_is_shortened(field: str) -> None:
    (job,) = show(a_job("x", {**FAILED_JOB, field: "m" * 9000})).jobs
    assert "mmm" in getattr(job, field)
    assert len(getattr(job, field)) <= jobs.MAX_TEXT


@pytest.mark.parametrize("field", ["jobStatus", "jobDeploymentStatus", "jobId", "rayClusterName"])
def test_a_job_with_a_name_that_is_too_long_is_unreadable(field: str) -> None:
    (job,) = show(a_job("x", {**FAILED_JOB, field: "m" * 9000})).jobs
    assert job.status == jobs.UNREADABLE


@pytest.mark.parametrize(("field", "shown"), [("schedule", "schedule"), ("timeZone", "time_zone")])
def test_a_text_of_a_cron_job_is_shortened(field: str, shown: str) -> None:
    (cron_job,) = show(cron_jobs=(a_cron_job(**{field: "m" * 9000}),)).cron_jobs
    assert "mmm" in getattr(cron_job, shown)
    assert len(getattr(cron_job, shown)) <= jobs.MAX_TEXT
    assert len(cron_job.problem) <= jobs.MAX_TEXT


def test_a_job_that_is_not_shown_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 1)
    unreadable = a_job("old", {"failed": "many"}, hour=8)
    shown = show(unreadable, a_job("runs", RUNNING))
    assert ([job.name for job in shown.jobs], shown.omitted) == (["runs"], 1)


def test_a_page_is_sent_the_jobs_once() -> None:
    board = Board(PageSources())
    feed = PageFeed(board, None)
    assert b"event: jobs" not in feed.encode_changes()
    board.show_jobs(show(a_job("runs", RUNNING)))
    assert feed.encode_changes().count(b"event: jobs") == 1
    board.show_jobs(show(a_job("runs", RUNNING)))
    assert feed.encode_changes() == b""
    board.show_jobs(show(a_job("runs", COMPLETE)))
    assert b'"status":"Complete"' in feed.encode_changes()


async def poll(kube: FakeKube) -> ShownJobs | None:
    """Read the list of a namespace once, and return the jobs of the board."""

    async def connect() -> KubeClient:
        return cast("KubeClient", kube)

    board, listing = Board(PageSources()), SharedListing()
    events = EventLog(lambda _: None, lambda: None)
    try:
        await Poller(connect, "default", board, History(events), listing).read_list()
    finally:
        listing.close()
    assert board.is_listed
    return board.jobs


async def test_the_jobs_are_read_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "read_clock", lambda: NOW)
    kube = FakeKube(now=lambda: NOW)
    kube.put(RAY_JOB, a_job("runs", RUNNING))
    kube.put(RAY_CRON_JOB, a_cron_job())
    found = await poll(kube)
    assert found is not None
    assert [job.name for job in found.jobs] == ["runs"]
    assert [cron_job.name for cron_job in found.cron_jobs] == ["hourly"]


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (errors.NotFound("the server could not find the requested resource"), ""),
        (errors.Forbidden("you may not list rayjobs"), "rayjobs: you may not list rayjobs"),
        (session.AccessDenied("you may not list rayjobs"), "rayjobs: you may not list rayjobs"),
    ],
)
async def test_the_services_are_shown_where_jobs_cannot_be_read(
    problem: errors.RaybusError, text: str
) -> None:
    kube = FakeKube(now=lambda: NOW)
    kube.put(RAY_CRON_JOB, a_cron_job())
    kube.faults.append(lambda request: problem if request.kind == "RayJob" else None)
    found = await poll(kube)
    assert found is not None
    assert (found.jobs, found.problem, len(found.cron_jobs)) == ([], text, 1)
