"""Plans that start an attempt: names, RayCluster, submitter (spec rayjob §6.1-6.3)."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from common import labels, names
from common.api.core import Service
from common.api.ray_job import DeploymentState, RayJobStatus, SubmissionMode
from common.kube.resources import JOB, RAY_CLUSTER
from common.runtime.actions import (
    FINALIZER_REFUSED,
    Action,
    Create,
    EmitEvent,
    IfExists,
    Plan,
    SetFinalizers,
    earliest,
)
from job_reconciler import attempts, batch, deadlines, events
from job_reconciler.actions import SyncPodGroup
from job_reconciler.observed import Observed
from job_reconciler.phases import ending
from job_reconciler.resources import command, ray_cluster, submitter
from job_reconciler.status.update import update

POLL: Final = timedelta(seconds=3)
"""Time until the next read of objects that the bus does not deliver.

A cluster that the job selects is such an object.
"""
READY: Final = "ready"
"""Value of a RayCluster's `status.state` once all its pods have been ready."""


def begin(observed: Observed) -> Plan[Action]:
    """Return the plan that records the names of a new attempt's objects, before any is created."""
    job, actions = observed.job, list[Action]()
    if labels.RAYJOB_FINALIZER not in job.metadata.finalizers:
        finalizers = (*job.metadata.finalizers, labels.RAYJOB_FINALIZER)
        actions.append(SetFinalizers(finalizers=finalizers, events=FINALIZER_REFUSED))
    status = attempts.begin(job, observed.new_name, observed.now)
    return Plan(
        actions=(*actions, *update(observed, status)), requeue_at=observed.now, note="begins"
    )


def initialize(observed: Observed) -> Plan[Action]:
    """Return the plan that creates the cluster and the submitter of an attempt."""
    job, cluster = observed.job, observed.cluster
    if (interruption := ending.find_interruption(observed)) is not None:
        return interruption
    if cluster is None:
        return provide_cluster(observed)
    if observed.cluster_is_foreign:
        return report_foreign(observed, "RayCluster", cluster.metadata.name)
    status = replace(job.status, ray_cluster_status=cluster.status, message=observed.problem)
    is_ready = bool(status.dashboard_url) or cluster.status.state == READY
    if not is_ready and not _has_sidecar_ended(observed):
        written = update(observed, status)
        return Plan(
            actions=(*written, *_plan_problem_event(observed)) if written else (),
            requeue_at=_get_recheck_time(observed),
            note="waiting for the RayCluster",
        )
    return _start(observed, status)


def _has_sidecar_ended(observed: Observed) -> bool:
    """Return whether the submitter in the head pod has ended (SidecarMode; acceptance 65).

    The submitter starts with the head and does not wait for the workers. If it has ended, the
    cluster may never become ready, because a head pod with an ended container is not ready.
    """
    is_sidecar = observed.job.spec.submission_mode == SubmissionMode.SIDECAR
    return is_sidecar and observed.submitter.is_present and observed.submitter.has_ended


def _start(observed: Observed, status: RayJobStatus) -> Plan[Action]:
    """Return the plan that writes `status` and starts the job on a cluster that is ready."""
    job = observed.job
    if (url := _get_dashboard_url(observed)) is None:
        note = "waiting for the head Service with a port named dashboard"
        return Plan(requeue_at=observed.now + POLL, note=note)
    is_interactive = job.spec.submission_mode == SubmissionMode.INTERACTIVE
    state = DeploymentState.WAITING if is_interactive else DeploymentState.RUNNING
    status = replace(
        status, dashboard_url=url, job_deployment_status=state.value, message="", reason=""
    )
    observed = replace(observed, job=replace(job, status=replace(job.status, dashboard_url=url)))
    if job.spec.submission_mode == SubmissionMode.K8S_JOB and observed.submitter_is_foreign:
        return report_foreign(observed, "Job", job.metadata.name)
    actions = (*create_submitter(observed), *update(observed, status))
    return Plan(actions=actions, requeue_at=observed.now, note="the RayCluster is ready")


def wait_for_job(observed: Observed) -> Plan[Action]:
    """Return the plan for a cluster that waits until a user submits a job (InteractiveMode)."""
    job = observed.job
    if (interruption := ending.find_interruption(observed)) is not None:
        return interruption
    if not job.spec.job_id:
        return Plan(requeue_at=deadlines.next_deadline(job), note="waiting for spec.jobId")
    status = replace(
        job.status,
        job_id=job.spec.job_id,
        job_deployment_status=DeploymentState.RUNNING.value,
    )
    return Plan(actions=update(observed, status), requeue_at=observed.now, note="a job is named")


def provide_cluster(observed: Observed) -> Plan[Action]:
    """Return the plan for a missing cluster: create it, unless the job selects it."""
    job, requeue_at = observed.job, _get_recheck_time(observed)
    if observed.selects_cluster:
        return Plan(
            actions=(EmitEvent(event=events.cluster_not_found(job)),),
            requeue_at=earliest(requeue_at, observed.now + POLL),
            note="the selected RayCluster does not exist",
        )
    name = f"{job.metadata.namespace}/{job.status.ray_cluster_name}"
    scheduler, body = batch.scheduler(observed.config), ray_cluster.build(job, observed.config)
    scheduler.mark_cluster(job, body)
    group = scheduler.build_pod_group(job)
    create = Create(
        resource=RAY_CLUSTER,
        body=body,
        if_exists=IfExists.NEED_OWN,
        events=events.CLUSTER_CREATED.format(name),
    )
    actions = (create,) if group is None else (SyncPodGroup(body=group), create)
    return Plan(actions=actions, requeue_at=requeue_at, note="creates the RayCluster")


def create_submitter(observed: Observed) -> tuple[Action, ...]:
    """Return the actions that create the submitter Job; empty if it exists or is not needed."""
    job, cluster = observed.job, observed.cluster
    has_submitter = job.spec.submission_mode == SubmissionMode.K8S_JOB
    if not has_submitter or cluster is None or observed.submitter_job is not None:
        return ()
    body = submitter.build(job, cluster, observed.config)
    batch.scheduler(observed.config).mark_submitter(job, body)
    create = Create(
        resource=JOB,
        body=body,
        if_exists=IfExists.NEED_OWN,
        events=events.SUBMITTER_CREATED.format(job.metadata.namespaced_name),
    )
    if command.needs_shell(job.spec.entrypoint):
        return create, EmitEvent(event=events.entrypoint_in_shell(job))
    return (create,)


def _plan_problem_event(observed: Observed) -> tuple[Action, ...]:
    """Return the Event with the reason why the job does not start; empty without a problem.

    A repeated Event only increases the count of the first Event.
    """
    if not observed.problem:
        return ()
    return (EmitEvent(event=events.not_started(observed.problem)),)


def report_foreign(observed: Observed, kind: str, name: str) -> Plan[Action]:
    """Return the plan that reports that a name needed by the RayJob is taken by another owner."""
    return Plan(
        actions=(EmitEvent(event=events.not_owned(kind, name, observed.job)),),
        requeue_at=earliest(_get_recheck_time(observed), observed.now + POLL),
        note=f"{kind} {name} belongs to somebody else",
    )


def _get_recheck_time(observed: Observed) -> datetime | None:
    """Return when to reconcile even if nothing changes; None if that is not needed.

    This is the next deadline, or the time at which a selected cluster is read again.
    """
    poll = observed.now + POLL if observed.selects_cluster else None
    return earliest(deadlines.next_deadline(observed.job), poll)


def _get_dashboard_url(observed: Observed) -> str | None:
    """Return the address of the cluster's dashboard without its scheme; None if it is unknown."""
    job, service = observed.job, observed.dashboard_service
    if job.status.dashboard_url:
        return job.status.dashboard_url
    port = None if service is None else _get_dashboard_port(service)
    if service is None or port is None:
        return None
    host = names.head_fqdn(
        service.metadata.name, job.metadata.namespace, observed.config.cluster_domain
    )
    return f"{host}:{port}"


def _get_dashboard_port(service: Service) -> int | None:
    ports = (port.port for port in service.spec.ports if port.name == "dashboard")
    return next(ports, None)
