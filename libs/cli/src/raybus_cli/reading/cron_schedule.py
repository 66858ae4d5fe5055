"""Reads the schedule of a RayCronJob with job-reconciler's own parser. Does no I/O."""

from datetime import UTC, datetime

import msgspec

from common.api.ray_cron_job import RayCronJob
from common.feature_gates import Gates
from job_reconciler.cron import validation
from job_reconciler.cron.policy import Concurrency
from job_reconciler.cron.validation import InvalidCronJob, Timetable


class RunForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The future runs of a RayCronJob, according to its schedule."""

    cron_job: RayCronJob
    timetable: Timetable | None
    """The timetable of the RayCronJob; None if it is invalid."""
    violation: str
    """The rule that the RayCronJob breaks; empty if it is valid."""

    @property
    def concurrency(self) -> str:
        """The concurrency policy; empty if the RayCronJob is invalid."""
        return "" if self.timetable is None else self.timetable.policy.concurrency

    @property
    def waits_for_earlier_run(self) -> bool:
        """Whether a run waits until the earlier ones have ended."""
        return self.concurrency == Concurrency.FORBID

    def find_next_run(self, now: datetime) -> datetime | None:
        """Return the time of the next run; it is in the past if the run is due and has not started.

        The result is None if the RayCronJob is invalid, suspended or being deleted, or if the
        schedule has no more runs.
        """
        meta, status = self.cron_job.metadata, self.cron_job.status
        is_stopped = self.cron_job.spec.suspend or meta.deletion_timestamp is not None
        if self.timetable is None or is_stopped:
            return None
        base = min(status.last_schedule_time or meta.creation_timestamp or now, now)
        schedule, zone = self.timetable.schedule, self.timetable.zone
        try:
            due = schedule.newest_run(base, now, zone)
            deadline = self.timetable.policy.starting_deadline
            if due is not None and (deadline is None or now - due <= deadline):
                return due
            return schedule.next_run(due or base, zone)
        except OverflowError:  # the last day that Python knows
            return None

    def list_next_runs(self, now: datetime, count: int) -> list[datetime]:
        """Return the times of the next runs, at most `count`; the first run may be due already."""
        first = self.find_next_run(now)
        if self.timetable is None or first is None:
            return []
        runs = [first]
        while len(runs) < count:
            following = self.timetable.schedule.next_run(runs[-1], self.timetable.zone)
            if following is None:
                break
            runs.append(following)
        return runs


def forecast(cron_job: RayCronJob, gates: Gates) -> RunForecast:
    """Return the forecast of a RayCronJob under the feature gates of job-reconciler.

    A schedule without a time zone is read as UTC, the default of job-reconciler.
    """
    try:
        timetable = validation.parse(cron_job, UTC, gates)
    except InvalidCronJob as violation:
        return RunForecast(cron_job=cron_job, timetable=None, violation=str(violation))
    return RunForecast(cron_job=cron_job, timetable=timetable, violation="")
