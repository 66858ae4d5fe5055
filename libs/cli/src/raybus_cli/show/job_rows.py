"""The tables of RayJobs and RayCronJobs in `raybus get` and `raybus list`. Does no I/O."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.feature_gates import BETA
from raybus_cli.printing import Column, Table, format_age
from raybus_cli.reading import cron_schedule
from raybus_cli.show import job_report
from raybus_cli.show.tree import count_seconds_since

DELETING: Final = "Deleting"
_NAMESPACE: Final = (Column("namespace"),)
_JOB: Final = (
    Column("name"),
    Column("status"),
    Column("job status", 4),
    Column("attempts", 3),
    Column("duration", 2),
    Column("cron job", 5),
    Column("age", 1),
)
_JOB_WIDE: Final = (Column("raycluster", 7), Column("job id", 8), Column("reason", 6))
_CRON_JOB: Final = (
    Column("name"),
    Column("schedule", 1),
    Column("time zone", 5),
    Column("status"),
    Column("last run", 3),
    Column("next run", 2),
    Column("age", 4),
)
_CRON_JOB_WIDE: Final = (Column("concurrency", 7), Column("reason", 6))


class JobRow(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="RayJob"
):
    """A row of the RayJob table."""

    namespace: str
    name: str
    status: str
    """`status.jobDeploymentStatus`, or `Deleting`; empty until raybus has read the RayJob."""
    job_status: str
    attempts: int
    max_attempts: int
    seconds: int | None
    """Duration of the last attempt in seconds; up to now if it still runs."""
    cron_job: str
    age_seconds: int | None
    cluster: str
    job_id: str
    reason: str


class CronJobRow(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="RayCronJob"
):
    """A row of the RayCronJob table."""

    namespace: str
    name: str
    schedule: str
    time_zone: str
    status: str
    """`Active`, `Suspended`, `Invalid` or `Deleting`."""
    last_run_seconds: int | None
    """Seconds since the scheduled time of the last run."""
    next_run: datetime | None
    """Time of the next run; None if there is no next run, or if it is not known."""
    next_run_seconds: int | None
    """Seconds until the next run; 0 if the run is due."""
    age_seconds: int | None
    concurrency: str
    reason: str
    """The rule that an invalid RayCronJob breaks; empty for a valid one."""


def build_job_row(job: RayJob, *, now: datetime) -> JobRow:
    """Build the row of a RayJob."""
    report = job_report.build(job, now)
    meta = job.metadata
    return JobRow(
        namespace=report.namespace,
        name=report.name,
        status=DELETING if meta.deletion_timestamp is not None else report.state,
        job_status=report.job_status,
        attempts=report.attempts,
        max_attempts=report.max_attempts,
        seconds=report.seconds,
        cron_job=report.cron_job,
        age_seconds=count_seconds_since(meta.creation_timestamp, now),
        cluster=report.cluster,
        job_id=report.job_id,
        reason=report.reason,
    )


def build_cron_job_row(cron_job: RayCronJob, *, now: datetime) -> CronJobRow:
    """Build the row of a RayCronJob."""
    meta, last = cron_job.metadata, cron_job.status.last_schedule_time
    forecast = cron_schedule.forecast(cron_job, BETA)
    next_run = forecast.find_next_run(now)
    return CronJobRow(
        namespace=meta.namespace,
        name=meta.name,
        schedule=str(cron_job.raw_spec.get("schedule", "")),
        time_zone=str(cron_job.raw_spec.get("timeZone", "")),
        status=_find_status(cron_job, is_valid=not forecast.violation),
        last_run_seconds=count_seconds_since(last, now),
        next_run=next_run,
        next_run_seconds=None if next_run is None else count_seconds_since(now, next_run),
        age_seconds=count_seconds_since(meta.creation_timestamp, now),
        concurrency=forecast.concurrency,
        reason=forecast.violation,
    )


def _find_status(cron_job: RayCronJob, *, is_valid: bool) -> str:
    if cron_job.metadata.deletion_timestamp is not None:
        return DELETING
    if not is_valid:
        return "Invalid"
    return "Suspended" if cron_job.spec.suspend else "Active"


def build_job_table(rows: Sequence[JobRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Build the table of RayJobs; `all_namespaces` adds the column of the namespace."""
    lines = [
        (
            *([row.namespace] if all_namespaces else []),
            *(
                row.name,
                row.status or "-",
                row.job_status or "-",
                f"{row.attempts}/{row.max_attempts}",
                format_age(row.seconds),
                row.cron_job or "-",
                format_age(row.age_seconds),
            ),
            *((row.cluster or "-", row.job_id or "-", row.reason or "-") if wide else ()),
        )
        for row in rows
    ]
    return Table((*_NAMESPACE[: int(all_namespaces)], *_JOB, *(_JOB_WIDE if wide else ())), lines)


def build_cron_job_table(rows: Sequence[CronJobRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Build the table of RayCronJobs; `all_namespaces` adds the column of the namespace."""
    lines = [
        (
            *([row.namespace] if all_namespaces else []),
            *(
                row.name,
                row.schedule or "-",
                row.time_zone or "-",
                row.status,
                format_past(row.last_run_seconds),
                format_next_run(row.next_run_seconds),
                format_age(row.age_seconds),
            ),
            *((row.concurrency or "-", row.reason or "-") if wide else ()),
        )
        for row in rows
    ]
    return Table(
        (*_NAMESPACE[: int(all_namespaces)], *_CRON_JOB, *(_CRON_JOB_WIDE if wide else ())), lines
    )


def format_past(seconds: int | None) -> str:
    """Format the age of a run: `5m ago`."""
    return "-" if seconds is None else f"{format_age(seconds)} ago"


def format_next_run(seconds: int | None) -> str:
    """Format the time until the next run: `in 5m`, or `due`."""
    if seconds is None:
        return "-"
    return f"in {format_age(seconds)}" if seconds else "due"
