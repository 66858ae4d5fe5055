"""Events of RayJobs for external consumers.

Each kind of event is a struct. `KINDS` lists all kinds; the JSON schemas and the table in
docs/events are generated from this list. Only job-reconciler publishes the events. No event has
text that the job, its user or Ray wrote, because such text may contain secrets.
"""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from common.api import ray_cron_job
from common.api.ray_job import DeploymentState, RayJob
from common.bus.cloud_events import EventData, EventFamily, digest, name_kinds
from common.ray import owner
from common.untrusted import clipped

MAX_NAME: Final = 253
MAX_MESSAGE: Final = 300
_EXIT_CODE: Final = "exit code "
_COUNTED: Final = frozenset({DeploymentState.FAILED, DeploymentState.RETRYING})
"""Values of `jobDeploymentStatus` with which `status.failed` includes the present attempt."""

Name = Annotated[str, Meta(max_length=MAX_NAME)]
Reason = Annotated[
    str, Meta(max_length=MAX_NAME, description="As in the status, such as `AppFailed`.")
]
Message = Annotated[
    str,
    Meta(
        max_length=MAX_MESSAGE,
        description="A sentence if raybus ended the attempt, as after a deadline. Empty if the job "
        "failed, because Ray's text may hold secrets; status.message has it.",
    ),
]
ExitCode = Annotated[int, Meta(description="The exit code of the driver; null if unknown.")] | None
Seconds = (
    Annotated[
        int, Meta(ge=0, description="From the attempt's beginning to its end; null if unknown.")
    ]
    | None
)


class JobAttempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The attempt of a RayJob that an event is about."""

    id: Annotated[str, Meta(description="The same in all events of one attempt, and in no other.")]
    number: Annotated[int, Meta(ge=1, description="1 and the number of earlier failed attempts.")]
    started: Annotated[
        datetime, Meta(tz=True, description="When the attempt began: status.startTime.")
    ]
    cluster: Annotated[Name, Meta(description="Its RayCluster; empty once it is forgotten.")]
    submission_id: Annotated[
        Name, Meta(description="The ID of the job in Ray; empty before it has one.")
    ]
    cron_job: Annotated[
        Name, Meta(description="The RayCronJob that created the RayJob; empty without one.")
    ] = ""


class JobEventData(EventData, frozen=True, kw_only=True, rename="camel"):
    """The fields that all events have; also used to decode an event of an unknown kind."""

    attempt: JobAttempt

    @property
    def series(self) -> str:
        """Return the ID of the attempt, which all its events have in common."""
        return self.attempt.id


class JobSubmitted(JobEventData, frozen=True, kw_only=True):
    """An attempt began: the status names its RayCluster, which is about to be created."""

    max_attempts: Annotated[
        int, Meta(ge=1, description="1 and spec.backoffLimit; no attempt follows the last one.")
    ]


class JobRunning(JobEventData, frozen=True, kw_only=True):
    """Ray has started the driver. A short driver may have ended already."""


class JobSucceeded(JobEventData, frozen=True, kw_only=True):
    """The RayJob is complete: its driver ended without an error."""

    duration_seconds: Seconds = None


class JobStopped(JobEventData, frozen=True, kw_only=True):
    """The RayJob is complete: somebody stopped the job in Ray."""

    duration_seconds: Seconds = None


class JobFailed(JobEventData, frozen=True, kw_only=True):
    """The RayJob has failed, and no attempt follows."""

    reason: Reason
    message: Message = ""
    exit_code: ExitCode = None
    duration_seconds: Seconds = None


class JobRetried(JobEventData, frozen=True, kw_only=True):
    """The attempt has failed; the next one begins once its RayCluster is gone."""

    reason: Reason
    message: Message = ""
    exit_code: ExitCode = None


class JobSuspended(JobEventData, frozen=True, kw_only=True):
    """The user suspended the RayJob: the attempt is over, and its RayCluster is being deleted."""


class JobDeleted(JobEventData, frozen=True, kw_only=True):
    """The RayJob and its children are deleted. This is the last event of the RayJob."""

    state: Annotated[
        Name, Meta(description="The last status.jobDeploymentStatus, such as `Complete`.")
    ]


KINDS: Final[dict[str, type[JobEventData]]] = name_kinds(
    JobSubmitted,
    JobRunning,
    JobSucceeded,
    JobStopped,
    JobFailed,
    JobRetried,
    JobSuspended,
    JobDeleted,
)
"""All kinds of events, roughly in the order in which a RayJob emits them."""

FAMILY: Final = EventFamily[JobEventData](
    resource="rayjobs",
    type_prefix="io.raybus.job.",
    kind_prefix="job-",
    base=JobEventData,
    kinds=KINDS,
)


def identify_attempt(uid: str, started: datetime, number: int) -> str:
    """Return the ID of an attempt: a digest of the RayJob's UID, the attempt's start and number."""
    return digest(uid, started, number)[:16]


def find_attempt(job: RayJob) -> JobAttempt | None:
    """Return the present or last attempt of a RayJob; None if no attempt has begun."""
    status, meta = job.status, job.metadata
    started = status.start_time
    if started is None:
        return None
    number = max((status.failed or 0) + (status.job_deployment_status not in _COUNTED), 1)
    cron_job = owner.find_controller(meta, ray_cron_job.KIND)
    return JobAttempt(
        id=identify_attempt(meta.uid, started, number),
        number=number,
        started=started,
        cluster=clipped(status.ray_cluster_name, MAX_NAME),
        submission_id=clipped(status.job_id, MAX_NAME),
        cron_job=clipped(cron_job or "", MAX_NAME),
    )


def count_max_attempts(job: RayJob) -> int:
    """Return the maximum number of attempts of a RayJob; 1 if `backoffLimit` is invalid."""
    retries = job.raw_spec.get("backoffLimit")
    return 1 + retries if isinstance(retries, int) and retries > 0 else 1


def parse_exit_code(message: str) -> int | None:
    """Return the driver's exit code from Ray's `message`; None if the message has none."""
    first_line = message.partition("\n")[0]
    text = first_line.partition(_EXIT_CODE)[2][:12].partition(",")[0].rstrip(". ")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() else None
