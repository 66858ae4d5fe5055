"""How often raybus requests a job's status from Ray: often after a change, then less and less.

No poll is needed to notice the end of a submitter, because it arrives over the bus. The polls of
one replica are limited in total, so that many jobs whose status does not change cost little. This
limit never delays a poll by more than half of the time since the job's last change. A short job
among a thousand others therefore does not wait for their polls.
"""

from datetime import datetime, timedelta
from typing import Final

from common.api.ray_job import RayJob
from job_reconciler.states import SUBMITTER_MODES

MIN_INTERVAL: Final = timedelta(seconds=0.5)
MAX_INTERVAL: Final = timedelta(seconds=3)
"""Longest time between two polls of a job while there are few jobs; the same as in KubeRay."""
INTERVAL_DIVISOR: Final = 20
"""The poll interval is the time since the job's last change divided by this number."""
ALIGNMENT: Final = timedelta(seconds=1)
"""Polls with long intervals are moved to full seconds, so that several polls start together.

A process that wakes up once for twenty polls needs half the processor time of one that wakes up
twenty times.
"""
MAX_POLLS_PER_SECOND: Final = 50
"""Maximum polls per second by one replica right after many jobs have changed.

A job then waits at most `MAX_INTERVAL` for its next poll.
"""
POLLS_PER_SECOND: Final = 15
"""Target polls per second by one replica for jobs whose status does not change.

This applies to jobs without a submitter: only a poll shows their end. A poll takes about 2 ms of
processor time, so many such jobs cost less than 3 % of a core.
"""
POLLS_WITH_SUBMITTER: Final = 8
"""Like `POLLS_PER_SECOND`, for jobs with a submitter.

Fewer polls are enough, because the end of the submitter already shows the end of the job.
"""


def compute_interval(job: RayJob, jobs: int, now: datetime) -> timedelta:
    """Return the time between two polls of a job, in a replica that polls `jobs` jobs."""
    status = job.status
    changed_at = status.ray_job_info.end_time or status.ray_job_info.start_time
    quiet = now - (changed_at or status.start_time or now)
    has_submitter = job.spec.submission_mode in SUBMITTER_MODES
    rate = POLLS_WITH_SUBMITTER if has_submitter else POLLS_PER_SECOND
    at_rest = min(timedelta(seconds=jobs / rate), quiet / 2)
    return max(compute_first_interval(jobs), min(MAX_INTERVAL, quiet / INTERVAL_DIVISOR), at_rest)


def compute_first_interval(jobs: int) -> timedelta:
    """Return the time from a submission to the first poll, in a replica that polls `jobs` jobs."""
    return max(MIN_INTERVAL, min(MAX_INTERVAL, timedelta(seconds=jobs / MAX_POLLS_PER_SECOND)))


def compute_next_poll(interval: timedelta, age: timedelta, now: datetime) -> datetime:
    """Return the time of the next poll; `age` is the age of the last answer."""
    at = now + max(interval - age, MIN_INTERVAL)
    if interval < MAX_INTERVAL:
        return at
    past = timedelta(microseconds=at.microsecond)
    return at + (ALIGNMENT - past) if past else at
