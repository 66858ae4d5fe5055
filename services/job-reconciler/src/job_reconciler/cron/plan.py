"""The plan of one reconcile of a RayCronJob (spec rayjob §20.3, and its recommendations).

A run is one start of the schedule, with one RayJob. If several runs were missed during an outage, a
suspension or a change of the schedule, only the newest is started; KubeRay starts every missed run.
Annotations add a concurrency policy, a starting deadline and limits for finished jobs (`policy`).
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

import msgspec

from common import labels
from common.api import meta, ray_cluster, ray_cron_job, ray_job
from common.api.opaque import Body
from common.api.ray_cron_job import RayCronJob, RayCronJobStatus
from common.api.ray_job import DeploymentState, RayJob
from common.feature_gates import Gates
from common.kube import resources
from common.ray import owner
from common.runtime.actions import (
    Action,
    ActionEvents,
    Create,
    Delete,
    EmitEvent,
    IfExists,
    Plan,
    UpdateStatus,
    normal,
    warning,
)
from job_reconciler.cron import validation
from job_reconciler.cron.policy import Concurrency
from job_reconciler.cron.schedule import Every
from job_reconciler.cron.validation import InvalidCronJob, Timetable
from job_reconciler.reasons import CronEventReason

FAILED: Final = frozenset({DeploymentState.FAILED, DeploymentState.VALIDATION_FAILED})
"""Deployment statuses of jobs that have ended without success."""
MAX_CLOCK_SKEW: Final = timedelta(minutes=1)
"""Largest difference between the clocks of two replicas that is not reported.

NTP keeps the difference far below it.
"""
_MINUTE: Final = timedelta(minutes=1)


class ObservedCronJob(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a RayCronJob, from which one reconcile decides."""

    cron_job: RayCronJob
    jobs: tuple[RayJob, ...] = ()
    """The RayJobs that the RayCronJob owns, by their controller reference."""
    now: datetime
    local_zone: tzinfo = UTC
    """The time zone of a RayCronJob that does not name one."""


def make_plan(observed: ObservedCronJob, gates: Gates) -> Plan[Action]:
    """Decide which RayJobs to create and delete, and when to reconcile again."""
    cron_job = observed.cron_job
    if cron_job.metadata.deletion_timestamp is not None:
        return Plan(note="being deleted")
    try:
        timetable = validation.parse(cron_job, observed.local_zone, gates)
    except InvalidCronJob as error:
        note = f"{cron_job.metadata.namespaced_name}: {error}"
        return Plan(
            actions=(EmitEvent(event=warning(CronEventReason.INVALID_SPEC, "Validate", note)),),
            note="invalid spec",
        )
    cleanup = tuple(_delete_finished(observed, timetable))
    if cron_job.spec.suspend:
        note = "RayCronJob suspended, no new RayJobs will be created"
        event = EmitEvent(event=normal(CronEventReason.SUSPENDED, "Suspend", note))
        return Plan(actions=(event, *cleanup), note="suspended")
    return _plan_next_run(observed, timetable, cleanup)


def _plan_next_run(
    observed: ObservedCronJob, timetable: Timetable, cleanup: tuple[Action, ...]
) -> Plan[Action]:
    schedule, zone, now = timetable.schedule, timetable.zone, observed.now
    last = _get_last_run(observed.cron_job, now)
    if last > now + MAX_CLOCK_SKEW:
        note = (
            f"The last run is recorded for {meta.rfc3339(last)}, which is in the future: no run "
            "starts before. Correct the clock, or status.lastScheduleTime"
        )
        event = EmitEvent(event=warning(CronEventReason.MISSED, "Schedule", note))
        return Plan(actions=(event, *cleanup), requeue_at=schedule.next_run(now, zone), note=note)
    base = min(last, now)
    due = schedule.newest_run(base, now, zone)
    if due is None:
        return Plan(actions=cleanup, requeue_at=schedule.next_run(base, zone), note="no run is due")
    next_run = schedule.next_run(due, zone)
    record = UpdateStatus(status=RayCronJobStatus(last_schedule_time=due))
    if build_job_name(observed.cron_job.metadata.name, timetable, due) in (
        job.metadata.name for job in observed.jobs
    ):  # the process ended between the creation of the job and its record
        return Plan(actions=(record, *cleanup), requeue_at=next_run, note="the run has started")
    deadline = timetable.policy.starting_deadline
    if deadline is not None and now - due > deadline:
        note = f"The run of {meta.rfc3339(due)} is more than {deadline} late and is skipped"
        event = EmitEvent(event=warning(CronEventReason.MISSED, "Schedule", note))
        return Plan(actions=(event, *cleanup), requeue_at=next_run, note="too late for a run")
    active = [job for job in observed.jobs if not _has_ended(job)]
    if active and timetable.policy.concurrency is Concurrency.FORBID:
        note = (
            f"The run of {meta.rfc3339(due)} waits, because RayJob {active[0].metadata.name} has "
            f"not ended and {labels.CONCURRENCY_POLICY} is {Concurrency.FORBID}"
        )
        event = EmitEvent(event=normal(CronEventReason.ALREADY_ACTIVE, "Schedule", note))
        return Plan(actions=(event, *cleanup), requeue_at=next_run, note="an earlier job runs")
    actions: list[Action] = []
    if timetable.policy.concurrency is Concurrency.REPLACE:
        actions += [_replace(job) for job in active]
    if missed := schedule.next_run(base, zone):
        actions += _report_missed(missed, due)
    body = build_job(observed.cron_job, timetable, due)
    actions += [
        Create(
            resource=resources.RAY_JOB,
            body=body,
            if_exists=IfExists.NEED_OWN,
            events=_build_creation_events(body),
        ),
        record,
    ]
    # The clean-up comes first, because it may free the quota that the run needs.
    return Plan(actions=(*cleanup, *actions), requeue_at=next_run, note="a run is due")


def build_job(cron_job: RayCronJob, timetable: Timetable, run: datetime) -> Body:
    """Return the RayJob of a run that is due at time `run`."""
    name = cron_job.metadata.name
    return {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": ray_job.KIND,
        "metadata": {
            "name": build_job_name(name, timetable, run),
            "namespace": cron_job.metadata.namespace,
            "labels": {**timetable.policy.job_labels, labels.CRON_JOB_NAME: name},
            "annotations": {labels.CRON_JOB_TIMESTAMP: meta.rfc3339(run)},
            "ownerReferences": owner.reference(cron_job.metadata, ray_cron_job.KIND),
        },
        "spec": cron_job.raw_job_template,
    }


def build_job_name(cron_job: str, timetable: Timetable, run: datetime) -> str:
    """Return the name of a run's RayJob, which is the same in every reconcile.

    It ends in the minutes since 1970, as in KubeRay. A schedule with several runs in one minute has
    the seconds since 1970 instead.
    """
    seconds = int(run.timestamp())
    schedule = timetable.schedule
    is_fast = isinstance(schedule, Every) and schedule.period < _MINUTE
    return f"{cron_job}-{seconds if is_fast else seconds // 60}"


def _get_last_run(cron_job: RayCronJob, now: datetime) -> datetime:
    """Return the time of the last run; before the first run, the creation of the RayCronJob."""
    return cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp or now


def _has_ended(job: RayJob) -> bool:
    status = job.status.job_deployment_status
    return status == DeploymentState.COMPLETE or status in FAILED


def _replace(job: RayJob) -> Delete:
    note = f"Deleted RayJob {job.metadata.namespaced_name}, which a newer run replaces"
    failure = f"Failed to delete RayJob {job.metadata.namespaced_name}: "
    return Delete(
        resource=resources.RAY_JOB,
        name=job.metadata.name,
        uid=job.metadata.uid,
        events=ActionEvents(
            success=normal(CronEventReason.DELETED, "Delete", note),
            failure=warning(CronEventReason.DELETE_FAILED, "Delete", failure),
        ),
    )


def _report_missed(first: datetime, due: datetime) -> list[Action]:
    """Return the Event about the runs that were missed from `first` until before `due`, if any."""
    if first >= due:
        return []
    note = (
        f"The runs from {meta.rfc3339(first)} until before {meta.rfc3339(due)} were missed and are "
        "not started"
    )
    return [EmitEvent(event=warning(CronEventReason.MISSED, "Schedule", note))]


def _build_creation_events(body: Body) -> ActionEvents:
    name = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    created = normal(CronEventReason.CREATED, "Create", f"Created RayJob {name}")
    return ActionEvents(
        success=created,
        failure=warning(
            CronEventReason.CREATE_FAILED, "Create", f"Failed to create RayJob {name}: "
        ),
    )


def _delete_finished(observed: ObservedCronJob, timetable: Timetable) -> Iterator[Action]:
    """Yield the actions that delete ended RayJobs above the limits, the oldest RayJob first."""
    limits = (
        (timetable.policy.succeeded_limit, {DeploymentState.COMPLETE}),
        (timetable.policy.failed_limit, FAILED),
    )
    for limit, statuses in limits:
        ended = [job for job in observed.jobs if job.status.job_deployment_status in statuses]
        if limit is not None:
            yield from (
                Delete(
                    resource=resources.RAY_JOB,
                    name=job.metadata.name,
                    uid=job.metadata.uid,
                    is_side=True,
                )
                for job in _list_oldest(ended, len(ended) - limit)
                if job.metadata.deletion_timestamp is None
            )


def _list_oldest(jobs: Iterable[RayJob], count: int) -> list[RayJob]:
    if count <= 0:
        return []
    first = datetime.min.replace(tzinfo=UTC)
    return sorted(
        jobs, key=lambda job: (job.metadata.creation_timestamp or first, job.metadata.name)
    )[:count]
