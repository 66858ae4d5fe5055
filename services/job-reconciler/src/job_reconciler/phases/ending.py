"""Plans that end an attempt, suspend a RayJob, or start over (spec rayjob §6.6, §11, §12)."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from common.api.core import Job, Pod
from common.api.ray_job import (
    TERMINAL_JOB_STATES,
    DeploymentState,
    JobState,
    RayJob,
    RayJobStatus,
    SubmissionMode,
)
from common.kube.resources import JOB, RAY_CLUSTER
from common.runtime.actions import Action, Delete, Plan
from job_reconciler import attempts, batch, deadlines, events
from job_reconciler.actions import StopJob, SyncPodGroup
from job_reconciler.observed import Observed
from job_reconciler.outcome import JobAnswer
from job_reconciler.states import Ending
from job_reconciler.status.update import update

RECHECK: Final = timedelta(seconds=3)
"""Time until the deletion of objects is checked again, if no change of the objects arrives."""
OVERDUE_AFTER: Final = timedelta(seconds=60)
"""Time that the plan waits for a pod after the end of the pod's grace period."""


def finish(observed: Observed, ending: Ending, status: RayJobStatus | None = None) -> Plan[Action]:
    """Return the plan that records the end of an attempt, which may lead to a retry.

    `status` is the status with Ray's last answer, if it differs from the recorded status. Before
    the end is recorded, the plan stops a job that may still run, and deletes a submitter that could
    still submit the job. If the end cannot be recorded, a repetition of these requests does no
    harm.
    """
    known = observed.job.status if status is None else status
    job = replace(observed.job, status=known)
    new = attempts.finish(job, ending, observed.now)
    actions = (*stop(observed, known), *_delete_late_submitter(observed), *update(observed, new))
    return Plan(actions=actions, requeue_at=observed.now, note=f"attempt ends: {ending.state}")


def _delete_late_submitter(observed: Observed) -> tuple[Action, ...]:
    """Return the action that deletes a submitter that could still submit the ended attempt's job.

    Empty if there is no such submitter. If Ray knows the job, the submitter only prints the job's
    log, and stays.
    """
    submitter, ray = observed.submitter_job, observed.ray
    if submitter is None or observed.job.spec.submission_mode != SubmissionMode.K8S_JOB:
        return ()
    is_followed = ray is not None and isinstance(ray.answer, JobAnswer)
    if is_followed or observed.submitter.has_ended or observed.submitter_is_foreign:
        return ()
    return _delete_submitter(submitter)


def _delete_submitter(submitter: Job) -> tuple[Action, ...]:
    meta = submitter.metadata
    if meta.deletion_timestamp is not None:
        return ()
    report = events.SUBMITTER_DELETED.format(meta.namespaced_name)
    return (Delete(resource=JOB, name=meta.name, uid=meta.uid, events=report),)


def stop(
    observed: Observed, status: RayJobStatus, *, must_succeed: bool = False
) -> tuple[Action, ...]:
    """Return the action that stops a Ray job that may still run; empty if it cannot run.

    A job may run although no status of it was read yet: with many jobs, the first read may take
    minutes.
    """
    has_ended = status.job_status in TERMINAL_JOB_STATES
    if has_ended or observed.cluster is None or observed.cluster_is_foreign:
        return ()
    if not status.dashboard_url or not status.job_id:
        return ()
    stopping = StopJob(cluster=observed.cluster, job_id=status.job_id, must_succeed=must_succeed)
    return (stopping,)


def find_interruption(observed: Observed) -> Plan[Action] | None:
    """Return the plan for an attempt that is suspended or has passed a deadline; None otherwise."""
    if observed.job.spec.suspend:
        return _suspend(observed)
    end = deadlines.find_passed_deadline(observed.job, observed.now)
    return None if end is None else finish(observed, end)


def _suspend(observed: Observed) -> Plan[Action]:
    """Return the plan that records that the RayJob is being suspended, before any deletion."""
    status = replace(observed.job.status, job_deployment_status=DeploymentState.SUSPENDING.value)
    return Plan(actions=update(observed, status), requeue_at=observed.now, note="suspends")


def tear_down(observed: Observed) -> Plan[Action]:
    """Return the plan that deletes an attempt's objects and then resets or suspends the RayJob.

    The plan waits until the cluster, its pods and the submitter are gone, so that no two attempts
    overlap or use quota at the same time.
    """
    status, namespace = observed.job.status, observed.job.metadata.namespace
    actions = list[Action]()
    waits_for = list[str]()
    cluster, submitter = observed.cluster, observed.submitter_job
    if cluster is not None and not observed.selects_cluster and not observed.cluster_is_foreign:
        waits_for.append("RayCluster")
        if cluster.metadata.deletion_timestamp is None:
            name = cluster.metadata.name
            report = events.CLUSTER_DELETED.format(f"{namespace}/{name}")
            actions.append(
                Delete(
                    resource=RAY_CLUSTER,
                    name=name,
                    uid=cluster.metadata.uid,
                    events=report,
                    is_side=True,
                )
            )
    if submitter is not None and not observed.submitter_is_foreign:
        waits_for.append("Job")
        actions += _delete_submitter(submitter)
    if any(_is_awaited(pod, observed) for pod in observed.pods):
        waits_for.append("pods")
    if waits_for:
        return Plan(
            actions=tuple(actions),
            requeue_at=observed.now + RECHECK,
            note=f"waiting for the deletion of: {', '.join(waits_for)}",
        )
    return Plan(
        actions=(*clean_up_scheduler(observed), *update(observed, attempts.reset(status))),
        requeue_at=observed.now,
        note="the objects of the attempt are gone",
    )


def clean_up_scheduler(observed: Observed) -> tuple[Action, ...]:
    """Return the action that shrinks the PodGroup of an ended RayJob; empty without a PodGroup."""
    scheduler = batch.scheduler(observed.config)
    group = scheduler.build_last_pod_group(observed.job, observed.cluster)
    if group is None:
        return ()
    report = events.batch_scheduler_cleaned_up(observed.job)
    return (SyncPodGroup(body=group, events=report),)


def resume(observed: Observed) -> Plan[Action]:
    """Return the plan for a suspended RayJob, which starts anew once the user resumes it."""
    if observed.job.spec.suspend:
        return Plan(note="suspended")
    status = replace(
        observed.job.status,
        job_status=JobState.UNKNOWN.value,
        job_deployment_status=DeploymentState.NEW.value,
    )
    return Plan(actions=update(observed, status), requeue_at=observed.now, note="resumes")


def recover(observed: Observed) -> Plan[Action]:
    """Return the plan for a RayJob that was invalid and is valid now (acceptance 16).

    The RayJob continues in its earlier state, which the status shows: it has the names of the
    attempt, and the address of the dashboard once the cluster was ready.
    """
    job: RayJob = observed.job
    if not job.status.ray_cluster_name:
        state = DeploymentState.NEW
    elif not job.status.dashboard_url:
        state = DeploymentState.INITIALIZING
    elif job.spec.submission_mode == SubmissionMode.INTERACTIVE and not job.status.job_id:
        state = DeploymentState.WAITING
    else:
        state = DeploymentState.RUNNING
    status = replace(job.status, job_deployment_status=state.value, reason="", message="")
    return Plan(actions=update(observed, status), requeue_at=observed.now, note="valid again")


def _is_awaited(pod: Pod, observed: Observed) -> bool:
    """Return whether the plan waits until a pod of the ended attempt is gone.

    It does not wait for a pod whose deletion is overdue, or for an orphan that nothing deletes.
    """
    ends_at = pod.metadata.deletion_timestamp
    if ends_at is not None:
        return observed.now < ends_at + OVERDUE_AFTER
    return any(owner.controller for owner in pod.metadata.owner_references)
