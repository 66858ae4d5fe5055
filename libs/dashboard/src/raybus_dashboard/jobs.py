"""The RayJobs and RayCronJobs on the dashboard page. Does no I/O.

Times are absolute, not ages, so an entry changes only if its object does.
"""

from datetime import datetime
from typing import Final

import msgspec
import structlog

from common import untrusted
from common.api.meta import Items
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from raybus_cli.show import job_report, job_rows
from raybus_cli.show.job_report import JobReport
from raybus_cli.show.phase import Tone
from raybus_dashboard.model import explain_unreadable

log = structlog.get_logger()

MAX_JOBS: Final = 500
"""Maximum number of RayJobs, and of RayCronJobs, on the dashboard page. The newest are shown."""
MAX_TEXT: Final = 2000
"""Maximum characters of a text from a tenant's object, such as a message, on the page."""
UNREADABLE: Final = "Unreadable"
"""The status of an object that cannot be decoded."""


class ShownJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayJob on the dashboard page."""

    namespace: str
    name: str
    status: str
    tone: Tone
    job_status: str
    attempts: int
    max_attempts: int
    cron_job: str
    """Name of the RayCronJob that created the RayJob; empty if no RayCronJob did."""
    cluster: str
    job_id: str
    reason: str
    message: str
    created: datetime | None
    started: datetime | None
    """Start of the last attempt."""
    ended: datetime | None
    """End of the job; None while it may run again."""


class ShownCronJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayCronJob on the dashboard page."""

    namespace: str
    name: str
    schedule: str
    time_zone: str
    status: str
    tone: Tone
    problem: str
    """The rule that an invalid RayCronJob breaks."""
    last_run: datetime | None
    next_run: datetime | None


class ShownJobs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All jobs on the dashboard page, newest first."""

    jobs: list[ShownJob] = []
    cron_jobs: list[ShownCronJob] = []
    omitted: int = 0
    """Number of older jobs that are left out."""
    problem: str = ""
    """Reason why jobs or cron jobs cannot be read; empty if they can, or if the kinds do not
    exist."""


def build_jobs(jobs: bytes, cron_jobs: bytes, *, now: datetime, problem: str = "") -> ShownJobs:
    """Build the page's jobs from two lists of the API server.

    Only the objects that are shown are decoded. An object that cannot be decoded is shown with the
    reason. `problem` is the reason why a list could not be read.
    """
    listed = sorted(_split_items(jobs), key=_sort_by_creation, reverse=True)
    listed_cron_jobs = sorted(_split_items(cron_jobs), key=_sort_by_name)
    shown, shown_cron_jobs = listed[:MAX_JOBS], listed_cron_jobs[:MAX_JOBS]
    return ShownJobs(
        jobs=[_show_job(meta, body, now) for meta, body in shown],
        cron_jobs=[_show_cron_job(meta, body, now) for meta, body in shown_cron_jobs],
        omitted=len(listed) - len(shown) + len(listed_cron_jobs) - len(shown_cron_jobs),
        problem=problem,
    )


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    creation_timestamp: str = ""


class _Head(msgspec.Struct, frozen=True):
    metadata: _Metadata


_Listed = tuple[_Metadata, msgspec.Raw]


def _split_items(body: bytes) -> list[_Listed]:
    items = msgspec.json.decode(body, type=Items[msgspec.Raw]).items
    return [(msgspec.json.decode(item, type=_Head).metadata, item) for item in items]


def _sort_by_creation(listed: _Listed) -> tuple[str, str, str]:
    meta, _ = listed
    return meta.creation_timestamp, meta.namespace, meta.name


def _sort_by_name(listed: _Listed) -> tuple[str, str]:
    meta, _ = listed
    return meta.namespace, meta.name


def _shorten(text: str) -> str:
    """Return a text that a tenant wrote, cut to `MAX_TEXT`."""
    return untrusted.clipped(text, MAX_TEXT)


def _show_job(meta: _Metadata, body: msgspec.Raw, now: datetime) -> ShownJob:
    try:
        job = msgspec.json.decode(body, type=RayJob)
        return _build_job(job, job_report.build(job, now))
    except Exception as problem:  # an unreadable object of one tenant must not hide the others
        log.exception("cannot show a RayJob", name=f"{meta.namespace}/{meta.name}")
        return ShownJob(
            namespace=meta.namespace,
            name=meta.name,
            status=UNREADABLE,
            tone=Tone.BAD,
            job_status="",
            attempts=0,
            max_attempts=0,
            cron_job="",
            cluster="",
            job_id="",
            reason="",
            message=explain_unreadable(problem),
            created=None,
            started=None,
            ended=None,
        )


def _build_job(job: RayJob, report: JobReport) -> ShownJob:
    is_deleted = job.metadata.deletion_timestamp is not None
    return ShownJob(
        namespace=report.namespace,
        name=report.name,
        status=job_rows.DELETING if is_deleted else report.state or "New",
        tone=Tone.BUSY if is_deleted else _find_tone(report),
        job_status=report.job_status,
        attempts=report.attempts,
        max_attempts=report.max_attempts,
        cron_job=report.cron_job,
        cluster=report.cluster,
        job_id=report.job_id,
        reason=_shorten(report.reason),
        message=_shorten(" ".join(report.message.split())),
        created=job.metadata.creation_timestamp,
        started=report.start_time,
        ended=report.end_time,
    )


def _find_tone(report: JobReport) -> Tone:
    if not report.has_ended:
        return Tone.BUSY
    return Tone.GOOD if report.has_succeeded else Tone.BAD


def _show_cron_job(meta: _Metadata, body: msgspec.Raw, now: datetime) -> ShownCronJob:
    try:
        cron_job = msgspec.json.decode(body, type=RayCronJob)
        row = job_rows.build_cron_job_row(cron_job, now=now)
    except Exception as problem:  # an unreadable object of one tenant must not hide the others
        log.exception("cannot show a RayCronJob", name=f"{meta.namespace}/{meta.name}")
        return ShownCronJob(
            namespace=meta.namespace,
            name=meta.name,
            schedule="",
            time_zone="",
            status=UNREADABLE,
            tone=Tone.BAD,
            problem=explain_unreadable(problem),
            last_run=None,
            next_run=None,
        )
    tones = {"Active": Tone.GOOD, "Invalid": Tone.BAD}
    return ShownCronJob(
        namespace=row.namespace,
        name=row.name,
        schedule=_shorten(row.schedule),
        time_zone=_shorten(row.time_zone),
        status=row.status,
        tone=tones.get(row.status, Tone.BUSY),
        problem=_shorten(row.reason),
        last_run=cron_job.status.last_schedule_time,
        next_run=row.next_run,
    )
