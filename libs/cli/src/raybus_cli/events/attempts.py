"""The attempts of a RayJob, from its events and its status. Does no I/O."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from common.api.meta import rfc3339
from common.api.ray_job import DeploymentState, JobState, RayJob
from common.bus.cloud_events import CloudEvent
from common.ray import job_events
from common.ray.job_events import (
    JobAttempt,
    JobDeleted,
    JobEventData,
    JobFailed,
    JobRetried,
    JobRunning,
    JobStopped,
    JobSucceeded,
    JobSuspended,
)
from raybus_cli.printing import Column, Table, format_age
from raybus_cli.reading.job_snapshot import FINISHED

MAX_ATTEMPTS: Final = 1000
"""Maximum number of attempts shown; older ones are left out."""
COLUMNS: Final = (
    Column("attempt"),
    Column("result"),
    Column("began", 3),
    Column("ended", 4),
    Column("duration", 1),
    Column("raycluster", 5),
    Column("reason", 2),
)
WIDE_COLUMNS: Final = (Column("job id", 6),)


class AttemptResult(StrEnum):
    """How an attempt ended, or which phase it has reached."""

    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    STOPPED = "Stopped"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    DELETED = "Deleted"


RESULT_BY_STATE: Final[dict[str, AttemptResult]] = {
    DeploymentState.INITIALIZING: AttemptResult.STARTING,
    DeploymentState.WAITING: AttemptResult.STARTING,
    DeploymentState.RUNNING: AttemptResult.RUNNING,
    DeploymentState.VALIDATION_FAILED: AttemptResult.STARTING,
    DeploymentState.RETRYING: AttemptResult.FAILED,
    DeploymentState.FAILED: AttemptResult.FAILED,
    DeploymentState.SUSPENDING: AttemptResult.SUSPENDED,
    DeploymentState.SUSPENDED: AttemptResult.SUSPENDED,
}
"""The result of an attempt by `status.jobDeploymentStatus`.

The result of a `Complete` job depends on Ray's status of the job.
"""
RESULT_BY_EVENT: Final[dict[type[JobEventData], AttemptResult]] = {
    JobRunning: AttemptResult.RUNNING,
    JobSucceeded: AttemptResult.SUCCEEDED,
    JobStopped: AttemptResult.STOPPED,
    JobFailed: AttemptResult.FAILED,
    JobRetried: AttemptResult.FAILED,
    JobSuspended: AttemptResult.SUSPENDED,
    JobDeleted: AttemptResult.DELETED,
}
UNFINISHED: Final = frozenset({AttemptResult.STARTING, AttemptResult.RUNNING})


class Attempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attempt of a RayJob."""

    attempt: int
    result: AttemptResult
    began: datetime
    ended: datetime | None = None
    """End of the attempt; None if it has not ended, or its end is not known."""
    seconds: int | None = None
    """Duration in seconds, up to now if the attempt still runs; None if its end is unknown."""
    cluster: str = ""
    job_id: str = ""
    reason: str = ""
    exit_code: int | None = None


def build(
    job: RayJob, events: Iterable[CloudEvent[JobEventData]], *, now: datetime
) -> list[Attempt]:
    """Return the attempts of a RayJob, oldest first.

    Events of an earlier RayJob of the same name are left out. The status adds what no event has
    reported. Without events, it still shows the last attempt.
    """
    known: dict[str, Attempt] = {}
    for event in events:
        attempt = event.data.attempt
        if attempt.id == job_events.identify_attempt(
            job.metadata.uid, attempt.started, attempt.number
        ):
            known[attempt.id] = _add_event(known.get(attempt.id), event)
    present = job_events.find_attempt(job)
    if present is not None and (shown := _read_status(job, present)) is not None:
        known[present.id] = _merge(known.get(present.id), shown)
    in_order = sorted(known.values(), key=lambda entry: (entry.began, entry.attempt))
    return [_set_duration(entry, now) for entry in in_order[-MAX_ATTEMPTS:]]


def _add_event(entry: Attempt | None, event: CloudEvent[JobEventData]) -> Attempt:
    """Return `entry` (None: a new attempt) with an event applied. A final result is kept."""
    data = event.data
    if entry is None:
        entry = _begin(data.attempt)
    result = RESULT_BY_EVENT.get(type(data))
    if result is None or entry.result not in UNFINISHED:
        return entry
    is_failure = isinstance(data, JobFailed | JobRetried)
    return msgspec.structs.replace(
        entry,
        result=result,
        ended=None if result in UNFINISHED else event.time,
        cluster=data.attempt.cluster or entry.cluster,
        job_id=data.attempt.submission_id or entry.job_id,
        reason=data.reason if is_failure else "",
        exit_code=data.exit_code if is_failure else None,
    )


def _begin(attempt: JobAttempt) -> Attempt:
    return Attempt(
        attempt=attempt.number,
        result=AttemptResult.STARTING,
        began=attempt.started,
        cluster=attempt.cluster,
        job_id=attempt.submission_id,
    )


def _read_status(job: RayJob, attempt: JobAttempt) -> Attempt | None:
    """Return the last attempt as the status describes it; None between two attempts."""
    status = job.status
    result = RESULT_BY_STATE.get(status.job_deployment_status)
    if status.job_deployment_status == DeploymentState.COMPLETE:
        is_stopped = status.job_status == JobState.STOPPED
        result = AttemptResult.STOPPED if is_stopped else AttemptResult.SUCCEEDED
    if result is None:
        return None
    has_failed = result is AttemptResult.FAILED
    has_ended = status.job_deployment_status in FINISHED
    return msgspec.structs.replace(
        _begin(attempt),
        result=result,
        ended=status.end_time if has_ended else None,
        reason=status.reason,
        exit_code=job_events.parse_exit_code(status.message) if has_failed else None,
    )


def _merge(told: Attempt | None, shown: Attempt) -> Attempt:
    """Combine what the events (`told`) and the status (`shown`) of an attempt say about it."""
    if told is None:
        return shown
    return msgspec.structs.replace(
        shown,
        ended=shown.ended or (None if shown.result in UNFINISHED else told.ended),
        cluster=shown.cluster or told.cluster,
        job_id=shown.job_id or told.job_id,
        reason=shown.reason or told.reason,
        exit_code=told.exit_code if shown.exit_code is None else shown.exit_code,
    )


def _set_duration(entry: Attempt, now: datetime) -> Attempt:
    end = now if entry.result in UNFINISHED else entry.ended
    seconds = None if end is None else max(0, int((end - entry.began).total_seconds()))
    return msgspec.structs.replace(entry, seconds=seconds)


def build_table(attempts: Iterable[Attempt], *, wide: bool) -> Table:
    """Return the table of attempts."""
    rows = [
        (
            str(entry.attempt),
            entry.result.value,
            _format_time(entry.began),
            _format_time(entry.ended),
            format_age(entry.seconds),
            entry.cluster or "-",
            _format_reason(entry),
            *((entry.job_id or "-",) if wide else ()),
        )
        for entry in attempts
    ]
    return Table((*COLUMNS, *(WIDE_COLUMNS if wide else ())), rows)


def _format_time(moment: datetime | None) -> str:
    return "-" if moment is None else rfc3339(moment)


def _format_reason(entry: Attempt) -> str:
    code = "" if entry.exit_code is None else f"exit code {entry.exit_code}"
    return ", ".join(filter(None, (entry.reason, code))) or "-"
