"""Events of a RayJob as docs/events shows them: an example of each kind."""

from datetime import timedelta
from typing import Final

from common.bus import cloud_events
from common.bus.cloud_events import Event
from common.ray import job_events as je
from common.ray.job_events import JobAttempt, JobEventData
from support.upgrade_events import START

UID: Final = "5e0c7d0a-8f0b-4c55-9a41-3d3e0e6b7a10"
NAME: Final = "nightly-29461200"
ATTEMPT: Final = JobAttempt(
    id=je.identify_attempt(UID, START, 1),
    number=1,
    started=START,
    cluster=f"{NAME}-x7k2p",
    submission_id=f"{NAME}-x7k2p",
    cron_job="nightly",
)
DEADLINE: Final = (
    "The RayJob has passed the activeDeadlineSeconds. StartTime: 2026-01-01 12:00:00 +0000 UTC. "
    "ActiveDeadlineSeconds: 600"
)
EXAMPLES: Final[tuple[tuple[float, JobEventData], ...]] = (
    (0, je.JobSubmitted(attempt=ATTEMPT, max_attempts=2)),
    (42, je.JobRunning(attempt=ATTEMPT)),
    (312, je.JobSucceeded(attempt=ATTEMPT, duration_seconds=312)),
    (200, je.JobStopped(attempt=ATTEMPT, duration_seconds=200)),
    (
        600,
        je.JobFailed(
            attempt=ATTEMPT, reason="DeadlineExceeded", message=DEADLINE, duration_seconds=600
        ),
    ),
    (95, je.JobRetried(attempt=ATTEMPT, reason="AppFailed", exit_code=137)),
    (60, je.JobSuspended(attempt=ATTEMPT)),
    (900, je.JobDeleted(attempt=ATTEMPT, state="Complete")),
)


def a_job_event(data: JobEventData, *, seconds: float = 0) -> Event:
    """Return an event of the RayJob team-a/nightly-29461200."""
    when = START + timedelta(seconds=seconds)
    identity = cloud_events.identity(data)
    return Event(namespace="team-a", name=NAME, id=identity, time=when, data=data)
