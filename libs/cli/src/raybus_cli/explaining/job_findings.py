"""The blocking issues of a RayJob and of a RayCronJob, most likely first. Does no I/O.

job-reconciler writes into a job's status why the job does not start (`common.ray.start_problems`).
This module applies the same rules to every pod. A condition or Warning Event is evidence for a
cause that the rules find, or a cause of its own.
"""

import shlex
from collections.abc import Iterable, Iterator, Set
from datetime import datetime
from typing import Final

import msgspec

from common import labels, untrusted
from common.api.core import Pod
from common.api.meta import rfc3339
from common.api.ray_job import DeploymentState, JobState, RayJob
from common.feature_gates import BETA
from common.kube import answers
from common.kube.answers import RefusalKind
from common.ray import start_problems
from common.ray.start_problems import StartCode, StartProblem
from common.validation import ray_job as rules
from raybus_cli.explaining import events, remedies
from raybus_cli.explaining.findings import UNRECONCILED_AFTER, find_ended_containers
from raybus_cli.explaining.remedies import BlockingCause, BlockingFinding, Rank
from raybus_cli.printing import format_age
from raybus_cli.reading import cron_schedule, observing
from raybus_cli.reading.cron_schedule import RunForecast
from raybus_cli.reading.job_snapshot import FINISHED, QUEUE_NAME, CronJobSnapshot, JobSnapshot
from raybus_cli.reading.snapshot import KubernetesEvent
from raybus_cli.show import job_report, job_rows
from raybus_cli.show.cause_texts import Code
from raybus_cli.show.job_report import JobReport
from raybus_cli.show.tree import count_seconds_since

_FAILURES: Final = {
    str(code): code
    for code in (
        Code.APPLICATION_FAILED,
        Code.SUBMISSION_FAILED,
        Code.DEADLINE_EXCEEDED,
        Code.START_DEADLINE_EXCEEDED,
        Code.STATUS_CHECKS_FAILED,
        Code.GRACE_PERIOD_EXCEEDED,
    )
}
"""The codes by `status.reason` of a failed attempt."""
_START_CODES: Final = {
    StartCode.CLUSTER_SUSPENDED: (Rank.REQUESTED, Code.QUEUED),
    StartCode.PODS_NOT_CREATED: (Rank.PODS, Code.CLUSTER_NOT_RUNNING),
    StartCode.QUOTA_EXCEEDED: (Rank.QUOTA, Code.QUOTA_EXCEEDED),
    StartCode.WEBHOOK_SILENT: (Rank.QUOTA, Code.WEBHOOK_SILENT),
    StartCode.INSUFFICIENT_CAPACITY: (Rank.CAPACITY, Code.INSUFFICIENT_CAPACITY),
    StartCode.IMAGE_PULL_FAILED: (Rank.IMAGE, Code.IMAGE_PULL_FAILED),
    StartCode.CONTAINER_NOT_STARTING: (Rank.PODS, Code.PODS_NOT_STARTING),
}
_REFUSALS: Final = {
    RefusalKind.QUOTA_EXCEEDED: (Rank.QUOTA, Code.QUOTA_EXCEEDED),
    RefusalKind.WEBHOOK_SILENT: (Rank.QUOTA, Code.WEBHOOK_SILENT),
}
_RESTATED: Final = frozenset(
    {"RayJobNotStarted", "RayJobFailed", "RayJobRetrying", "InvalidRayJobSpec"}
)
"""Reasons of Events that repeat the status, or a cause that this module finds itself."""
_REMEDIES: Final = {
    Code.INVALID_JOB: (
        "correct the named field and apply again; 'raybus lint -f FILE' checks before you apply"
    ),
    Code.INVALID_CRON_JOB: "correct the named field or annotation and apply again",
    Code.SUSPENDED: "set spec.suspend to false to start it, from the beginning",
    Code.QUEUED: "wait, or give the queue more quota: see its LocalQueue and ClusterQueue",
    Code.DELETING: (
        "wait; metadata.finalizers of the RayJob and its RayCluster names what blocks the deletion"
    ),
    Code.CLUSTER_NOT_FOUND: "create that RayCluster, or correct spec.clusterSelector",
    Code.WAITING_FOR_JOB: "submit a job to the RayCluster, and set spec.jobId to its submission ID",
    Code.JOB_STOPPED: "create the RayJob again to run it once more",
    Code.APPLICATION_FAILED: "see the log of the driver; spec.backoffLimit retries a failed job",
    Code.SUBMISSION_FAILED: "see the message and the log of the submitter",
    Code.DEADLINE_EXCEEDED: (
        "raise spec.activeDeadlineSeconds, or find out what made the job slow in its log"
    ),
    Code.START_DEADLINE_EXCEEDED: (
        "raise spec.preRunningDeadlineSeconds, or find out why the RayCluster did not start"
    ),
    Code.STATUS_CHECKS_FAILED: (
        "check that the head ran, and that no NetworkPolicy blocks raybus from port 8265 of its "
        "Service"
    ),
    Code.GRACE_PERIOD_EXCEEDED: "see the log of the submitter, and whether its pod was evicted",
    Code.RUN_WAITS: "wait, or stop that RayJob; the newest missed run starts after it",
    Code.WEBHOOK_SILENT: "repair the named webhook, or remove its configuration",
}
_DESCRIBED: Final = "kubectl -n {namespace} describe {kind} {name}"
_LOGS: Final = "raybus logs rayjob/{name} -n {namespace}"
_COMMANDS: Final = {
    Code.INVALID_JOB: "kubectl -n {namespace} edit rayjob {name}",
    Code.INVALID_CRON_JOB: "kubectl -n {namespace} edit raycronjob {name}",
    Code.SUSPENDED: (
        "kubectl -n {namespace} patch {kind} {name} --type merge -p "
        '\'{{"spec":{{"suspend":false}}}}\''
    ),
    Code.QUEUED: "kubectl -n {namespace} get workloads,localqueues",
    Code.DELETING: (
        "kubectl -n {namespace} get rayjob,raycluster -o "
        "custom-columns=NAME:.metadata.name,FINALIZERS:.metadata.finalizers"
    ),
    Code.NOT_RECONCILED: "raybus doctor",
    Code.CLUSTER_NOT_FOUND: "kubectl -n {namespace} get rayclusters",
    Code.CLUSTER_NOT_RUNNING: "kubectl -n {namespace} describe raycluster {cluster}",
    Code.QUOTA_EXCEEDED: "kubectl -n {namespace} describe resourcequota",
    Code.WEBHOOK_SILENT: (
        "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
    ),
    Code.APPLICATION_FAILED: _LOGS,
    Code.SUBMISSION_FAILED: _LOGS,
    Code.DEADLINE_EXCEEDED: _LOGS,
    Code.GRACE_PERIOD_EXCEEDED: _LOGS,
}
_POD: Final = "kubectl -n {namespace} describe pod {pod}"


class JobExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The output of `raybus explain rayjob/NAME` and `raybus explain raycronjob/NAME`."""

    kind: str
    namespace: str
    name: str
    state: str
    """State of the object: `status.jobDeploymentStatus` of a RayJob; `Active`, `Suspended` or
    another state of a RayCronJob."""
    has_succeeded: bool
    findings: list[BlockingFinding]
    unseen: list[str] = []


def explain_job(
    snapshot: JobSnapshot, *, now: datetime, offered: Set[str] | None = None
) -> JobExplanation:
    """Return why a RayJob does not start, or why it failed.

    `offered` are the names of the resources that the cluster's nodes have; None if they were not
    read.
    """
    job = snapshot.job
    report = job_report.build(job, now)
    causes = [*_check_spec(job), *_check_requests(job), *_check_manager(job, now)]
    if not causes:
        causes = [*_check_end(job, report)]
    if not causes and not report.has_ended:
        causes = [*_check_start(snapshot, now, offered)]
    if not causes and report.state == DeploymentState.INITIALIZING and report.message:
        causes = [_build_cause(job, Rank.OTHER, Code.PODS_NOT_STARTING, report.message)]
    causes = _add_events(snapshot, causes, now, has_ended=report.has_ended)
    return JobExplanation(
        kind="RayJob",
        namespace=report.namespace,
        name=report.name,
        state=report.state,
        has_succeeded=report.has_succeeded,
        findings=[
            remedies.build_finding(same, _build_command(job, same[0]))
            for same in remedies.merge_causes(causes)
        ],
        unseen=list(snapshot.unseen),
    )


def _build_cause(job: RayJob, rank: Rank, code: Code, what: str, detail: str = "") -> BlockingCause:
    return BlockingCause(
        rank=rank,
        code=code,
        what=" ".join(what.split()),
        remedy=find_remedy(code, job.metadata.name),
        detail=detail,
    )


def find_remedy(code: Code, name: str) -> str:
    """Return the remedy for a cause of the RayJob or RayCronJob `name`."""
    return _REMEDIES.get(code) or remedies.find_remedy(code, name)


def _check_spec(job: RayJob) -> Iterator[BlockingCause]:
    """Yield a cause if the spec breaks a rule. The spec of a finished job no longer matters."""
    if job.status.job_deployment_status in FINISHED:
        return
    violation = rules.metadata(job.metadata) or rules.spec(job, BETA) or rules.status(job)
    if violation is not None:
        yield _build_cause(job, Rank.SPEC, Code.INVALID_JOB, violation)


def _check_requests(job: RayJob) -> Iterator[BlockingCause]:
    """Yield a cause for each state that a user or a queue requested, such as a suspension."""
    meta, state = job.metadata, job.status.job_deployment_status
    if meta.deletion_timestamp is not None:
        text = "the RayJob is being deleted"
        yield _build_cause(job, Rank.REQUESTED, Code.DELETING, text)
    elif state not in FINISHED and job.raw_spec.get("suspend") is True:
        queue = meta.labels.get(QUEUE_NAME)
        code = Code.SUSPENDED if queue is None else Code.QUEUED
        text = (
            "spec.suspend is true"
            if queue is None
            else f"Kueue has not admitted it: it waits in the queue {queue}"
        )
        yield _build_cause(job, Rank.REQUESTED, code, text)
    elif state == DeploymentState.WAITING:
        text = f"RayCluster {job.status.ray_cluster_name} is ready and waits for a job"
        yield _build_cause(job, Rank.REQUESTED, Code.WAITING_FOR_JOB, text)


def _check_manager(job: RayJob, now: datetime) -> Iterator[BlockingCause]:
    created = job.metadata.creation_timestamp
    if job.manager != labels.MANAGED_BY_US:
        text = f"spec.managedBy is {job.manager}, so raybus does not manage the RayJob"
        yield _build_cause(job, Rank.UNMANAGED, Code.MANAGED_BY, text)
        return
    is_new = created is not None and now - created < UNRECONCILED_AFTER
    if not is_new and not job.status.job_deployment_status and not job.status.failed:
        text = "no service of raybus has reconciled it"
        yield _build_cause(job, Rank.UNMANAGED, Code.NOT_RECONCILED, text)


def _check_end(job: RayJob, report: JobReport) -> Iterator[BlockingCause]:
    """Yield the cause of the last attempt's failure, or a cause for a job that was stopped."""
    status = job.status
    if (
        status.job_deployment_status == DeploymentState.COMPLETE
        and status.job_status == JobState.STOPPED
    ):
        text = f"job {status.job_id} was stopped"
        yield _build_cause(job, Rank.REQUESTED, Code.JOB_STOPPED, text)
    if status.job_deployment_status not in {DeploymentState.FAILED, DeploymentState.RETRYING}:
        return
    code = _FAILURES.get(status.reason, Code.APPLICATION_FAILED)
    message = untrusted.plain(status.message)
    why = f": {start_problems.shorten(message)}" if message.strip() else ""
    text = f"attempt {report.attempts} of {report.max_attempts} has failed{why}"
    yield _build_cause(job, Rank.OTHER, code, text, detail=message)


def _check_start(
    snapshot: JobSnapshot, now: datetime, offered: Set[str] | None
) -> Iterator[BlockingCause]:
    """Yield the causes that keep the cluster, its pods or the submitter from starting.

    `offered` are the names of the resources that the nodes have; None if they were not read.
    """
    job, cluster = snapshot.job, snapshot.cluster
    status = job.status
    if cluster is None:
        selected = (job.spec.cluster_selector or {}).get(labels.CLUSTER)
        if selected and status.ray_cluster_name:
            text = f"RayCluster {selected}, which spec.clusterSelector names, does not exist"
            yield _build_cause(job, Rank.SPEC, Code.CLUSTER_NOT_FOUND, text)
        pods: Iterable[Pod] = snapshot.submitters
    else:
        suspension = start_problems.find_suspension(cluster)
        problems = ([] if suspension is None else [suspension]) + [
            *start_problems.of_cluster(cluster)
        ]
        for problem in problems:
            yield _convert_problem(snapshot, problem, None, offered)
        pods = (*snapshot.pods, *snapshot.submitters)
    for pod in pods:
        for problem in start_problems.of_pods([pod], now):
            yield _convert_problem(snapshot, problem, pod, offered)
    for pod in snapshot.pods:
        yield from find_ended_containers(pod)


def _convert_problem(
    snapshot: JobSnapshot, problem: StartProblem, pod: Pod | None, offered: Set[str] | None
) -> BlockingCause:
    rank, code = _START_CODES[problem.code]
    what, name, pulled, container = problem.message, "", "", ""
    if pod is not None:
        name = pod.metadata.name
        what = what.removeprefix(f"pod {name}").lstrip(": ")
        if (pull := observing.find_image_pull(pod, snapshot.events)) is not None:
            what, pulled = str(pull), pull.image
        restarted = (
            status.name for status in pod.status.container_statuses if status.restart_count
        )
        container = next(restarted, "")
    is_capacity = code is Code.INSUFFICIENT_CAPACITY
    return BlockingCause(
        rank=rank,
        code=code,
        what=" ".join(what.split()),
        image=pulled,
        pod=name,
        cluster=snapshot.job.status.ray_cluster_name,
        container=container,
        origin=problem.message,
        remedy=remedies.find_resource_remedy(what, offered) or remedies.MAKE_ROOM
        if is_capacity
        else find_remedy(code, snapshot.job.metadata.name),
    )


def _add_events(
    snapshot: JobSnapshot, causes: list[BlockingCause], now: datetime, *, has_ended: bool
) -> list[BlockingCause]:
    """Add recent Warnings to the causes as evidence.

    While the job starts or runs, a Warning that fits no cause becomes a cause of its own.
    """
    matched, more = list(causes), list[BlockingCause]()
    for event in _select_warnings(snapshot, now):
        note = " ".join(event.note.split())
        where = f"{event.regarding.kind} {event.regarding.name}"
        age = format_age(count_seconds_since(event.at, now))
        line = f"{where}: {event.reason} {age} ago: {note}"
        rank, code = _classify(event)
        at = [
            number
            for number, cause in enumerate(matched)
            if cause.is_named_in(note)
            or (cause.code is code and cause.pod in {"", event.regarding.name})
        ]
        for number in at:
            cause = matched[number]
            matched[number] = msgspec.structs.replace(cause, evidence=(*cause.evidence, line))
        if at or has_ended or (event.reason in _RESTATED and matched):
            continue
        more.append(
            BlockingCause(
                rank=rank,
                code=code,
                what=f"{where}: {event.reason}: {note}",
                cluster=snapshot.job.status.ray_cluster_name,
                remedy=find_remedy(code, snapshot.job.metadata.name),
            )
        )
    return [*matched, *more[: events.MAX_EVENT_CAUSES]]


def _classify(event: KubernetesEvent) -> tuple[Rank, Code]:
    if (refusal := _REFUSALS.get(answers.classify(event.note))) is not None:
        return refusal
    return Rank.EVENT, events.find_code(event)


def _select_warnings(snapshot: JobSnapshot, now: datetime) -> Iterator[KubernetesEvent]:
    """Yield the Warnings about the present attempt, newest first, without repetitions."""
    began = snapshot.job.status.start_time
    pods = {pod.metadata.name: pod for pod in (*snapshot.pods, *snapshot.submitters)}
    seen: set[tuple[str, str, str]] = set()
    for event in reversed(snapshot.events):
        key = (event.regarding.name, event.reason, event.note)
        at, pod = event.at, pods.get(event.regarding.name)
        if event.type != "Warning" or at is None or now - at > events.MAX_EVENT_AGE or key in seen:
            continue
        if (began is not None and at < began) or (
            pod is not None and events.is_past(pod, events.find_code(event))
        ):
            continue
        seen.add(key)
        yield event


def _build_command(job: RayJob, cause: BlockingCause) -> str:
    """Return the shell command that shows or solves a cause; names in it are quoted."""
    template = _POD if cause.pod else _COMMANDS.get(cause.code, _DESCRIBED)
    if cause.container and cause.code is Code.PODS_NOT_STARTING:
        template = remedies.PREVIOUS_LOGS
    return _fill(template, "rayjob", job.metadata.namespace, job.metadata.name, cause)


def _fill(template: str, kind: str, namespace: str, name: str, cause: BlockingCause) -> str:
    fields = {
        "kind": kind,
        "name": name,
        "namespace": namespace,
        "pod": cause.pod,
        "container": cause.container,
        "cluster": cause.cluster,
    }
    return template.format(**{key: shlex.quote(value) for key, value in fields.items()})


def explain_cron_job(snapshot: CronJobSnapshot, *, now: datetime) -> JobExplanation:
    """Return why a RayCronJob starts no RayJobs, or why its last run failed."""
    cron_job = snapshot.cron_job
    row = job_rows.build_cron_job_row(cron_job, now=now)
    causes = [*_check_cron_job(snapshot, now), *_check_last_run(snapshot, now)]
    if row.status != "Invalid":
        causes += _convert_cron_events(snapshot, now)
    return JobExplanation(
        kind="RayCronJob",
        namespace=row.namespace,
        name=row.name,
        state=row.status,
        has_succeeded=row.status == "Active",
        findings=[
            remedies.build_finding(same, _build_cron_command(snapshot, same[0]))
            for same in remedies.merge_causes(causes)
        ],
        unseen=list(snapshot.unseen),
    )


def _convert_cron_events(snapshot: CronJobSnapshot, now: datetime) -> list[BlockingCause]:
    """Return a cause for each of the newest Warnings, without repeated ones."""
    causes: dict[str, BlockingCause] = {}
    for event in reversed(snapshot.events):
        note = f"{event.reason}: {event.note}"
        is_new = event.at is not None and now - event.at <= events.MAX_EVENT_AGE
        if event.type == "Warning" and is_new and note not in causes:
            causes[note] = _build_cron_cause(snapshot, *_classify(event), note)
        if len(causes) == events.MAX_EVENT_CAUSES:
            break
    return [*causes.values()]


def _build_cron_cause(
    snapshot: CronJobSnapshot, rank: Rank, code: Code, what: str, *, job: str = ""
) -> BlockingCause:
    name = snapshot.cron_job.metadata.name
    return BlockingCause(
        rank=rank,
        code=code,
        what=" ".join(what.split()),
        job=job,
        remedy=f"see 'raybus explain rayjob/{job}'" if job else find_remedy(code, name),
    )


def _check_cron_job(snapshot: CronJobSnapshot, now: datetime) -> Iterator[BlockingCause]:
    """Yield the cause that keeps the RayCronJob from starting its next run."""
    cron_job, forecast = snapshot.cron_job, cron_schedule.forecast(snapshot.cron_job, BETA)
    if cron_job.metadata.deletion_timestamp is not None:
        text = "the RayCronJob is being deleted"
        yield _build_cron_cause(snapshot, Rank.REQUESTED, Code.DELETING, text)
    elif forecast.violation:
        yield _build_cron_cause(snapshot, Rank.SPEC, Code.INVALID_CRON_JOB, forecast.violation)
    elif cron_job.spec.suspend:
        text = "spec.suspend is true"
        yield _build_cron_cause(snapshot, Rank.REQUESTED, Code.SUSPENDED, text)
    elif (due := forecast.find_next_run(now)) and now - due >= UNRECONCILED_AFTER:
        yield _explain_delay(snapshot, forecast, due, now)


def _explain_delay(
    snapshot: CronJobSnapshot, forecast: RunForecast, due: datetime, now: datetime
) -> BlockingCause:
    reports = [job_report.build(job, now) for job in snapshot.jobs]
    active = next((report.name for report in reports if not report.has_ended), "")
    if active and forecast.waits_for_earlier_run:
        text = f"the run of {rfc3339(due)} waits, because RayJob {active} has not ended"
        return _build_cron_cause(snapshot, Rank.REQUESTED, Code.RUN_WAITS, text)
    text = f"the run of {rfc3339(due)} is due, and no service of raybus has started it"
    return _build_cron_cause(snapshot, Rank.UNMANAGED, Code.NOT_RECONCILED, text)


def _check_last_run(snapshot: CronJobSnapshot, now: datetime) -> Iterator[BlockingCause]:
    """Yield a cause if the newest RayJob that has ended did not succeed."""
    reports = (job_report.build(job, now) for job in snapshot.jobs)
    ended = next((report for report in reports if report.has_ended), None)
    if ended is None or ended.has_succeeded:
        return
    code = _FAILURES.get(ended.reason)
    if code is None:
        code = (
            Code.JOB_STOPPED if ended.state == DeploymentState.COMPLETE else Code.APPLICATION_FAILED
        )
    text = f"the last run, RayJob {ended.name}, did not succeed: {ended.text}"
    yield _build_cron_cause(snapshot, Rank.OTHER, code, text, job=ended.name)


def _build_cron_command(snapshot: CronJobSnapshot, cause: BlockingCause) -> str:
    meta = snapshot.cron_job.metadata
    template = _COMMANDS.get(cause.code, _DESCRIBED)
    if cause.job:
        template = "raybus explain rayjob/{name} -n {namespace}"
    return _fill(template, "raycronjob", meta.namespace, cause.job or meta.name, cause)
