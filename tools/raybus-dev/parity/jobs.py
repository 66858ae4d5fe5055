"""Compares what both operators derive from a RayJob that is about to start, or a RayCronJob.

For a RayJob, these are compared: the first problem of its manifest or of its start, the RayCluster,
the Kubernetes Job, the PodGroup and the head Service. How a job continues is tested elsewhere. For
a RayCronJob, the first problem, the next runs and the first RayJob are compared.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from common import errors
from common.api import go_json, ray_cluster, ray_cron_job, ray_job
from common.api.go_types import CLUSTER_SPEC
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.api.ray_job import RayJob
from common.clock import SystemClock
from common.validation import ray_job as job_rules
from job_reconciler import batch
from job_reconciler.cron import plan, validation
from job_reconciler.cron.validation import InvalidCronJob
from job_reconciler.resources import head_service, submitter
from job_reconciler.resources import ray_cluster as cluster_builder
from job_reconciler.settings import Config, read_config
from parity.cases import Case, RoundOutcome
from parity.comparable import comparable
from parity.rounds import dated

RUNS: Final = 12
"""Number of runs of a schedule to compare; `kuberay/cron_job.go` has the same number."""


def of_raybus(case: Case) -> Json:
    """Return what raybus does with the case's new RayJob, normalized for the comparison."""
    assert case.job is not None
    job, config = ray_job.decode(dated(case.job, SystemClock().now())), _config(case)
    problem = job_rules.metadata(job.metadata) or job_rules.spec(job, config.gates)
    if (problem := problem or batch.scheduler(config).find_violation(job)) is not None:
        return comparable(RoundOutcome(built={"problem": problem}))
    try:
        return comparable(_start(case, job, config))
    except errors.InvalidSpec as error:
        return comparable(RoundOutcome(built={"problem": str(error)}))


def _config(case: Case) -> Config:
    settings = case.settings
    return read_config(
        settings.config("").gates,
        settings.environment,
        cluster_domain="cluster.local",
        batch_scheduler=settings.scheduler,
    )


def _start(case: Case, job: RayJob, config: Config) -> RoundOutcome:
    objects: list[Body] = dated(case.objects, SystemClock().now())
    built, scheduler = Json(), batch.scheduler(config)
    if not job.spec.cluster_selector:
        body = cluster_builder.build(job, config)
        scheduler.mark_cluster(job, body)
        objects.append(body)
        plain = ray_cluster.decode({**body, "spec": job.raw_cluster_spec})
        built["head"] = head_service.build(job, plain, config)
    cluster = ray_cluster.decode(next(body for body in objects if body["kind"] == "RayCluster"))
    if job.spec.submission_mode == "K8sJobMode":
        body = submitter.build(job, cluster, config)
        scheduler.mark_submitter(job, body)
        objects.append(body)
    if (group := scheduler.build_pod_group(job)) is not None:
        objects.append(group)
    built["cluster"] = msgspec.json.decode(go_json.encode(CLUSTER_SPEC, cluster.raw_spec))
    return RoundOutcome(objects=objects, built=built)


def cron_job_of_raybus(case: Case) -> Json:
    """Return what raybus does with the case's RayCronJob, normalized for the comparison."""
    assert case.cron_job is not None
    cron_job, now = ray_cron_job.decode(case.cron_job), SystemClock().now()
    try:
        timetable = validation.parse(cron_job, UTC, _config(case).gates)
    except InvalidCronJob as error:
        return comparable(RoundOutcome(built={"problem": str(error)}))
    runs, run = list[datetime](), cron_job.status.last_schedule_time
    while run is not None and len(runs) < RUNS:
        if (run := timetable.schedule.next_run(run, timetable.zone)) is not None:
            runs.append(run)
    due = [run for run in runs[:1] if run <= now]
    return comparable(
        RoundOutcome(
            objects=[plan.build_job(cron_job, timetable, run) for run in due],
            built={"runs": " ".join(map(rfc3339, runs))},
        )
    )


def of_kuberay(outcome: RoundOutcome) -> Json:
    """Return KubeRay's outcome for a RayJob or RayCronJob, normalized for the comparison.

    Events and writes are left out.
    """
    return comparable(msgspec.structs.replace(outcome, events=[], writes=[]))
