"""What the command line says about a RayJob: its state, and how it ended. Does no I/O."""

from datetime import datetime
from typing import Final

import msgspec

from common.api.ray_job import DeploymentState, JobState, RayJob
from common.ray import job_events
from raybus_cli.reading import job_snapshot
from raybus_cli.reading.job_snapshot import ENDED

_BETWEEN_ATTEMPTS: Final = frozenset(
    {DeploymentState.NEW, DeploymentState.SUSPENDED, DeploymentState.RETRYING}
)


class JobReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a RayJob, and how it ended."""

    namespace: str
    name: str
    state: str
    """`status.jobDeploymentStatus`; empty until raybus has read the RayJob."""
    job_status: str
    """Ray's own status of the job."""
    job_id: str
    cluster: str
    attempts: int
    """Number of attempts that have begun."""
    max_attempts: int
    """`spec.backoffLimit` + 1, or `attempts` if that is larger because the limit was lowered."""
    reason: str
    message: str
    start_time: datetime | None
    """Start of the last attempt."""
    end_time: datetime | None
    seconds: int | None
    """Duration of the last attempt in seconds; up to now if it still runs."""
    cron_job: str = ""
    """The RayCronJob that created the RayJob."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_succeeded(self) -> bool:
        return self.state == DeploymentState.COMPLETE and self.job_status == JobState.SUCCEEDED

    @property
    def attempts_text(self) -> str:
        """The number of attempts so far and their limit, as `1/3`."""
        return f"{self.attempts}/{self.max_attempts}"

    @property
    def text(self) -> str:
        """The state in one line: `Failed: FAILED: AppFailed: exit code 1`."""
        state = self.state or "waiting for raybus to observe the RayJob"
        parts = (state, self.job_status, self.reason, " ".join(self.message.split()))
        return ": ".join(part for part in parts if part)

    @property
    def line(self) -> str:
        return f"RayJob {self.namespace}/{self.name} {self.text}"


def build(job: RayJob, now: datetime) -> JobReport:
    """Build the report of a RayJob."""
    meta, status = job.metadata, job.status
    end = status.end_time if status.job_deployment_status in ENDED else None
    start = status.start_time
    return JobReport(
        namespace=meta.namespace,
        name=meta.name,
        state=status.job_deployment_status,
        job_status=status.job_status,
        job_id=status.job_id,
        cluster=status.ray_cluster_name,
        attempts=_count_attempts(job),
        max_attempts=max(_count_attempts(job), job_events.count_max_attempts(job)),
        reason=status.reason,
        message=status.message,
        start_time=start,
        end_time=end,
        seconds=None if start is None else max(0, int(((end or now) - start).total_seconds())),
        cron_job=job_snapshot.find_cron_job(job),
    )


def _count_attempts(job: RayJob) -> int:
    status = job.status
    failed, succeeded = status.failed or 0, status.succeeded or 0
    state = status.job_deployment_status
    is_stopped = state == DeploymentState.COMPLETE and status.job_status != JobState.SUCCEEDED
    is_running = state not in ENDED | _BETWEEN_ATTEMPTS
    return failed + succeeded + (is_running or is_stopped)


def describe_pending(report: JobReport) -> str:
    """Return the state of a job that has not ended; empty if the job has ended."""
    return "" if report.has_ended else report.text
