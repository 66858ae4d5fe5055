"""Ray jobs in the format in which the dashboard accepts and reports them (spec rayjob §9.1)."""

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec

from common import errors, untrusted
from common.api.meta import MAX_MESSAGE_LENGTH, clipped
from common.api.opaque import Json
from common.ray.serve_status import MAX_REASON_LENGTH

PATH: Final = "/api/jobs/"
"""Path under which the dashboard lists jobs and accepts new ones."""
MAX_STATE_LENGTH: Final = 253
_MAX_MILLISECONDS: Final = 7_258_118_400_000
"""The year 2200, in milliseconds since 1970. Larger numbers are not accepted as a time."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray reports about a job."""

    state: str
    """State of the job in Ray: one of `JobState`, or a state that a newer Ray has added."""
    message: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to submit to Ray."""

    entrypoint: str
    submission_id: str
    runtime_env: Json | None = None
    metadata: dict[str, str] | None = None
    num_cpus: float | None = msgspec.field(default=None, name="entrypoint_num_cpus")
    num_gpus: float | None = msgspec.field(default=None, name="entrypoint_num_gpus")
    resources: dict[str, int | float] | None = msgspec.field(
        default=None, name="entrypoint_resources"
    )


class _Details(msgspec.Struct, frozen=True):
    status: str = ""
    message: str | None = None
    start_time: int | float | None = None
    end_time: int | float | None = None


def build_path(job_id: str) -> str:
    """Return the URL path of a job; raise `InvalidSpec` if the ID is empty or only dots."""
    if not job_id.strip("."):
        raise errors.InvalidSpec(f"{job_id!r} is not the ID of a job")
    return f"{PATH}{quote(job_id, safe='')}"


def decode(body: bytes) -> JobInfo:
    """Decode a dashboard's untrusted answer; raise `Unavailable` if it is not about a job."""
    try:
        details = msgspec.json.decode(body, type=_Details)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_answer(error) from error
    if not 0 < len(details.status) <= MAX_STATE_LENGTH:
        raise errors.Unavailable("the dashboard's answer about the job has no status")
    return JobInfo(
        state=details.status,
        message=clipped(details.message or "", MAX_MESSAGE_LENGTH),
        start_time=_time(details.start_time),
        end_time=_time(details.end_time),
    )


def _time(milliseconds: float | None) -> datetime | None:
    """Convert a time of Ray; None if unset, invalid or 0 (Ray's value before the job starts)."""
    if milliseconds is None or not 0 < milliseconds < _MAX_MILLISECONDS:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC)


def no_answer(error: Exception) -> errors.Unavailable:
    """Return the error for an answer that is not about a job; `error` says why."""
    reason = untrusted.clipped(str(error), MAX_REASON_LENGTH)
    return errors.Unavailable(f"the dashboard's answer is not about a job: {reason}")
