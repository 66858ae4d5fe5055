"""The effect of a manifest on a RayJob or RayCronJob, and the resources that a job requests.

Does no I/O. job-reconciler's own functions build the objects of an attempt, so their requests are
those of the real objects.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import structs

from common import labels, quantity
from common.api import ray_cluster, ray_cron_job
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import KIND as RAY_JOB
from common.api.ray_job import DeploymentState, RayJob, RayJobStatus, SubmissionMode
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.ray import desired_resources
from common.validation import ray_job as rules
from job_reconciler.resources import ray_cluster as clusters
from job_reconciler.resources import submitter
from job_reconciler.settings import Config
from raybus_cli.planning import demand, differences
from raybus_cli.planning.demand import PODS_RESOURCE, Amounts, QuotaCheck
from raybus_cli.planning.differences import Effect, SpecDifference
from raybus_cli.reading import cron_schedule
from raybus_cli.reading.job_snapshot import ENDED, FINISHED
from raybus_cli.reading.snapshot import Quota

NEW_NAME: Final = "new"
"""Suffix that a plan gives to the name of the next cluster; the real suffix is random."""
MAX_RUNS: Final = 3
"""Number of next runs of a RayCronJob that a plan lists."""
_WAITING: Final = frozenset({DeploymentState.NEW, DeploymentState.SUSPENDED})
"""The states of a RayJob in which no attempt has begun."""


class JobPlanOutcome(StrEnum):
    """The effect of a manifest on a RayJob or RayCronJob."""

    CREATED = "created"
    NOTHING = "nothing"
    NEXT_ATTEMPT = "next attempt"
    """The present attempt continues unchanged; the next one has the new spec."""
    IN_PLACE = "in place"
    """The new value applies to the present attempt, or to the clean-up after it."""
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    REFUSED = "refused"


class PlannedPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods of one role in an attempt."""

    role: str
    """`head`, the name of a worker group, or `submitter`."""
    pods: int
    max_pods: int
    """Number of pods if Ray's autoscaler adds as many as it may."""


class JobPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The effect of a manifest on a RayJob or RayCronJob."""

    kind: str = RAY_JOB
    namespace: str
    name: str
    outcome: JobPlanOutcome
    notes: list[str]
    differences: list[SpecDifference] = []
    submission_mode: str = ""
    pods: list[PlannedPods] = []
    demand: Amounts = {}
    """The resource requests of an attempt at its start, with the number of pods as `pods`."""
    max_demand: Amounts = {}
    """The resource requests of an attempt if Ray's autoscaler adds as many workers as it may."""
    gpus: str = "0"
    quotas: list[QuotaCheck] = []
    next_runs: list[datetime] = []
    """The times of the next runs of a RayCronJob."""


_AT_ONCE: Final = (Effect.IN_PLACE, "counts for the present attempt at once")
_AT_THE_END: Final = (Effect.IN_PLACE, "counts when the job has ended")
_EFFECTS: Final = {
    "activeDeadlineSeconds": _AT_ONCE,
    "preRunningDeadlineSeconds": _AT_ONCE,
    "backoffLimit": (Effect.IN_PLACE, "counts when the present attempt ends"),
    "ttlSecondsAfterFinished": _AT_THE_END,
    "shutdownAfterJobFinishes": _AT_THE_END,
    "deletionStrategy": _AT_THE_END,
    "suspend": (Effect.IN_PLACE, "the job is stopped, or starts from the beginning"),
    "submissionMode": (
        Effect.IN_PLACE,
        "the present attempt is followed in the new mode and may fail; suspend the job first",
    ),
}
_LATER: Final = (Effect.NEXT_ATTEMPT, "the present attempt goes on; a retry or resume has it")
_AFTER_END: Final = frozenset(field for field, effect in _EFFECTS.items() if effect is _AT_THE_END)
_CRON_EFFECTS: Final = {
    "schedule": (Effect.IN_PLACE, "counts from the last run on"),
    "timeZone": (Effect.IN_PLACE, "counts from the last run on"),
    "suspend": (Effect.IN_PLACE, "no new run starts, or the next one does; running jobs go on"),
}


def plan_creation(goal: RayJob, gates: Gates, quotas: tuple[Quota, ...]) -> JobPlan:
    """Plan the creation of a RayJob that does not exist yet."""
    if (violation := _find_violation(goal, gates)) is not None:
        return _refuse(goal, violation)
    is_suspended = goal.spec.suspend
    notes = ["it is created suspended, and starts when spec.suspend is false"] * is_suspended
    plan = _build(goal, JobPlanOutcome.CREATED, [*notes, *_describe_life(goal)])
    return _add_demand(plan, goal, gates, quotas)


def plan_change(stored: RayJob, goal: RayJob, gates: Gates, quotas: tuple[Quota, ...]) -> JobPlan:
    """Plan the change from the stored RayJob to the spec of `goal`."""
    changed = differences.compare_job_specs(
        stored.raw_spec, goal.raw_spec, lambda field: _find_effect(stored, field)
    )
    state = stored.status.job_deployment_status
    if state not in ENDED and (violation := _find_violation(goal, gates)) is not None:
        refused = _refuse(goal, violation)
        note = "the present attempt goes on as it is until the RayJob is valid again"
        notes = [*refused.notes, *([note] * (state not in _WAITING))]
        return structs.replace(refused, notes=notes, differences=changed)
    outcome, notes = _decide_outcome(stored, goal, changed)
    plan = structs.replace(_build(goal, outcome, notes), differences=changed)
    if outcome in {JobPlanOutcome.NOTHING, JobPlanOutcome.SUSPENDED} or state in ENDED:
        return plan
    # The use in the quotas already includes the requests of the present attempt.
    starts = state in _WAITING
    return _add_demand(plan, goal, gates, quotas if starts else ())


def _decide_outcome(
    stored: RayJob, goal: RayJob, changed: list[SpecDifference]
) -> tuple[JobPlanOutcome, list[str]]:
    state = stored.status.job_deployment_status
    if stored.manager != labels.MANAGED_BY_US:
        note = f"spec.managedBy is {stored.manager}: that controller decides"
        return JobPlanOutcome.NOTHING, [note]
    if state in FINISHED:
        counts = any(difference.effect is Effect.IN_PLACE for difference in changed)
        note = f"the job has ended ({state}) and does not run again; create a new RayJob"
        return (JobPlanOutcome.IN_PLACE if counts else JobPlanOutcome.NOTHING), [note]
    if (stored.raw_spec.get("suspend") is True) != goal.spec.suspend:
        return _decide_suspension(goal, state)
    return _decide_edit(goal, state, changed)


def _decide_suspension(goal: RayJob, state: str) -> tuple[JobPlanOutcome, list[str]]:
    if not goal.spec.suspend:
        return JobPlanOutcome.RESUMED, ["a new attempt starts, with a new RayCluster"]
    stops = "it is stopped, its RayCluster is deleted, and " if state not in _WAITING else ""
    note = f"{stops}it starts from the beginning when spec.suspend is false"
    return JobPlanOutcome.SUSPENDED, [note]


def _decide_edit(
    goal: RayJob, state: str, changed: list[SpecDifference]
) -> tuple[JobPlanOutcome, list[str]]:
    name = goal.metadata.name
    if not changed:
        return JobPlanOutcome.NOTHING, ["the spec is the same"]
    if state in _WAITING:
        return JobPlanOutcome.NEXT_ATTEMPT, ["no attempt has begun; the next one has this spec"]
    if any(difference.effect is Effect.IN_PLACE for difference in changed):
        return JobPlanOutcome.IN_PLACE, []
    note = f"the present attempt goes on; 'raybus stop {name}' and a resume start it over"
    return JobPlanOutcome.NEXT_ATTEMPT, [note]


def _find_effect(stored: RayJob, field: str) -> tuple[Effect, str]:
    state = stored.status.job_deployment_status
    if state in FINISHED:
        if field in _AFTER_END:
            return Effect.IN_PLACE, "counts for the clean-up that is still due"
        return Effect.NOTHING, "the job has ended"
    if field == "jobId" and state == DeploymentState.WAITING:
        return Effect.IN_PLACE, "names the job that the RayJob follows"
    if field != "suspend" and state in _WAITING:
        return Effect.NEXT_ATTEMPT, ""
    return _EFFECTS.get(field, _LATER)


def _find_violation(goal: RayJob, gates: Gates) -> str | None:
    return rules.metadata(goal.metadata) or rules.spec(goal, gates)


def _refuse(goal: RayJob, violation: str) -> JobPlan:
    return _build(goal, JobPlanOutcome.REFUSED, [violation])


def _build(goal: RayJob, outcome: JobPlanOutcome, notes: list[str]) -> JobPlan:
    return JobPlan(
        namespace=goal.metadata.namespace,
        name=goal.metadata.name,
        outcome=outcome,
        notes=notes,
        submission_mode=str(goal.raw_spec.get("submissionMode", SubmissionMode.K8S_JOB)),
    )


def _describe_life(goal: RayJob) -> Iterator[str]:
    """Yield what happens with the attempts and the cluster of a job."""
    spec = goal.spec
    if selected := (spec.cluster_selector or {}).get(labels.CLUSTER):
        yield f"it runs on RayCluster {selected}, which stays"
        return
    if retries := spec.backoff_limit:
        yield f"up to {retries + 1} attempts, one after the other, each on a new RayCluster"
    if spec.deletion_strategy is not None:
        yield "spec.deletionStrategy says what is deleted after its end"
    elif spec.shutdown_after_job_finishes:
        yield f"its RayCluster is deleted {spec.ttl_seconds_after_finished} s after its end"
    else:
        yield "its RayCluster stays after its end: shutdownAfterJobFinishes is false"


def _add_demand(plan: JobPlan, goal: RayJob, gates: Gates, quotas: tuple[Quota, ...]) -> JobPlan:
    """Return the plan, extended by the pods of an attempt and their resource requests."""
    name = f"{goal.metadata.name}-{NEW_NAME}"
    job = structs.replace(goal, status=RayJobStatus(job_id=name, ray_cluster_name=name))
    config = Config(gates=gates)
    selects = bool(job.spec.cluster_selector)
    body = clusters.build(job, config) if not selects else {"metadata": {"name": name}, "spec": {}}
    cluster = ray_cluster.decode(body)
    pods = [] if selects else [*_list_pods(cluster)]
    needed: Amounts = {} if selects else demand.compute_demand(cluster)
    most: Amounts = {} if selects else demand.compute_demand(cluster, sizes=_list_limits(cluster))
    if plan.submission_mode == SubmissionMode.K8S_JOB:
        requests = _compute_submitter(job, cluster, config)
        needed, most = (demand.add_amounts(amounts, requests) for amounts in (needed, most))
        pods.append(PlannedPods(role="submitter", pods=1, max_pods=1))
    return structs.replace(
        plan,
        pods=pods,
        demand=needed,
        max_demand=most,
        gpus=_count_gpus(needed),
        quotas=demand.judge(quotas, {}, needed),
    )


def _compute_submitter(job: RayJob, cluster: ray_cluster.RayCluster, config: Config) -> Amounts:
    if job.spec.submitter_pod_template is None and job.spec.cluster_selector:
        template: Body = {"spec": {"containers": [submitter.build_default_container(cluster)]}}
    else:
        template = submitter.build(job, cluster, config)["spec"]["template"]
    return {**desired_resources.as_text(desired_resources.of_pod(template)), PODS_RESOURCE: "1"}


def _list_pods(cluster: ray_cluster.RayCluster) -> Iterator[PlannedPods]:
    yield PlannedPods(role=labels.HEAD, pods=1, max_pods=1)
    limits = _list_limits(cluster)
    for group in traits.active_groups(cluster):
        pods = traits.target(group)
        most = limits.get(group.group_name, traits.replicas(group)) * traits.hosts(group)
        yield PlannedPods(role=group.group_name, pods=pods, max_pods=most)


def _list_limits(cluster: ray_cluster.RayCluster) -> dict[str, int]:
    """Return the maximum replicas by group if Ray's autoscaler is enabled."""
    if not cluster.spec.enable_in_tree_autoscaling:
        return {}
    groups = traits.active_groups(cluster)
    return {
        group.group_name: group.max_replicas for group in groups if group.max_replicas is not None
    }


def _count_gpus(amounts: Amounts) -> str:
    gpus: Iterable[str] = (
        amount for name, amount in amounts.items() if desired_resources.is_gpu(name)
    )
    total = quantity.ZERO
    for amount in gpus:
        total = total.add(quantity.parse(amount))
    return str(total)


def plan_cron_job(
    stored: RayCronJob | None,
    goal: RayCronJob,
    gates: Gates,
    quotas: tuple[Quota, ...],
    *,
    now: datetime,
) -> JobPlan:
    """Plan the creation of a RayCronJob, or the change from the stored one to `goal`."""
    changed: list[SpecDifference] = []
    if stored is not None:
        changed = differences.compare_job_specs(
            stored.raw_spec, goal.raw_spec, _find_cron_effect, config="jobTemplate"
        )
    plan = JobPlan(
        kind=ray_cron_job.KIND,
        namespace=goal.metadata.namespace,
        name=goal.metadata.name,
        outcome=JobPlanOutcome.CREATED if stored is None else JobPlanOutcome.IN_PLACE,
        notes=[],
        differences=changed,
    )
    forecast = cron_schedule.forecast(goal, gates)
    if forecast.violation:
        return structs.replace(plan, outcome=JobPlanOutcome.REFUSED, notes=[forecast.violation])
    if stored is not None and not changed:
        return structs.replace(plan, outcome=JobPlanOutcome.NOTHING, notes=["the spec is the same"])
    if goal.spec.suspend:
        note = "no run starts while spec.suspend is true; running jobs go on"
        outcome = plan.outcome if stored is None else JobPlanOutcome.SUSPENDED
        plan = structs.replace(plan, outcome=outcome, notes=[note])
    elif stored is not None and stored.spec.suspend:
        plan = structs.replace(plan, outcome=JobPlanOutcome.RESUMED)
    runs = forecast.list_next_runs(now, MAX_RUNS)
    job = _build_job_of(goal)
    plan = structs.replace(
        plan,
        submission_mode=str(job.raw_spec.get("submissionMode", SubmissionMode.K8S_JOB)),
        next_runs=runs,
    )
    return _add_demand(plan, job, gates, quotas)


def _find_cron_effect(field: str) -> tuple[Effect, str]:
    return _CRON_EFFECTS.get(field, (Effect.NEXT_ATTEMPT, "counts for the next run"))


def _build_job_of(cron_job: RayCronJob) -> RayJob:
    meta = ObjectMeta(name=cron_job.metadata.name, namespace=cron_job.metadata.namespace)
    template: Json = cron_job.raw_job_template
    return RayJob(metadata=meta, spec_json=msgspec.Raw(msgspec.json.encode(template)))
