"""The Kubernetes Events of job-reconciler (spec rayjob §17).

They report writes, with KubeRay's texts, and each change of a RayJob's state. A successful
submission over HTTP has no Event of its own: the Event about the change to Running precedes it.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from common import durations, untrusted
from common.api.meta import ObjectMeta
from common.api.ray_job import DeploymentState, JobState, RayJob, RayJobStatus
from common.runtime.actions import ActionEvents, EventTemplate, KubeEvent, normal, warning
from job_reconciler.reasons import EventReason

MAX_MESSAGE: Final = 600
"""Maximum characters of a job's message that an Event repeats."""

CLUSTER_CREATED: Final = EventTemplate("Create", "RayCluster", "RayCluster {}")
CLUSTER_DELETED: Final = EventTemplate("Delete", "RayCluster", "cluster {}")
SUBMITTER_CREATED: Final = EventTemplate(
    "Create",
    "RayJobSubmitter",
    "Kubernetes Job {}",
    failed="Failed to create new Kubernetes Job {}: ",
)
SUBMITTER_DELETED: Final = EventTemplate("Delete", "RayJobSubmitter", "submitter K8s Job {}")
SERVICE_CREATED: Final = EventTemplate("Create", "Service", "the service {}", end=", ")
SERVICE_UPDATED: Final = EventTemplate("Update", "Service", "the service {}", end=", ")


def workers_suspended(cluster: str) -> ActionEvents:
    """Return the success and failure Events of suspending all workers of a cluster.

    `cluster` is the cluster as `<namespace>/<name>`.
    """
    return ActionEvents(
        success=normal(
            EventReason.CLUSTER_UPDATED,
            "Update",
            f"Set the `suspend` field to true for all worker groups in cluster {cluster}",
        ),
        failure=warning(
            EventReason.CLUSTER_UPDATE_FAILED,
            "Update",
            f"Failed to suspend worker groups in cluster {cluster}: ",
        ),
    )


def batch_scheduler_cleaned_up(job: RayJob) -> ActionEvents:
    """Return the success and failure Events of resizing the PodGroup after a job's end.

    Its new size is the number of pods that are left.
    """
    what = f"batch scheduler resources for RayJob {job.metadata.namespaced_name}"
    return ActionEvents(
        success=normal(EventReason.SCHEDULER_CLEANED_UP, "Cleanup", f"Cleaned up {what}"),
        failure=warning(EventReason.SCHEDULER_FAILED, "Cleanup", f"Failed to cleanup {what}: "),
    )


def entrypoint_in_shell(job: RayJob) -> KubeEvent:
    """Return the Event which says that Ray shows the entrypoint differently from the spec."""
    note = (
        f"The entrypoint of job {job.status.job_id} is more than one command or has variables: the "
        "whole of it runs in the Ray job, through bash -c"
    )
    return normal(EventReason.ENTRYPOINT_IN_SHELL, "Submit", note)


def not_started(problem: str) -> KubeEvent:
    """Return the Event which says that a problem keeps a job from starting."""
    return warning(EventReason.NOT_STARTED, "Reconcile", untrusted.clipped(problem, MAX_MESSAGE))


def cluster_not_found(job: RayJob) -> KubeEvent:
    """Return the Event which says that the cluster of a `clusterSelector` does not exist."""
    name = f"{job.metadata.namespace}/{job.status.ray_cluster_name}"
    note = f"RayCluster {name} set in the clusterSelector is not found. It must be created manually"
    return warning(EventReason.CLUSTER_NOT_FOUND, "Validate", note)


def not_owned(kind: str, name: str, job: RayJob) -> KubeEvent:
    """Return the Event which says that another owner's object has a name that the RayJob needs."""
    note = (
        f"{kind} {job.metadata.namespace}/{name} does not belong to RayJob {job.metadata.name} "
        "and is left alone; delete or rename it"
    )
    return warning(EventReason.NOT_OWNED, "Reconcile", note)


def not_submitted(job: RayJob) -> ActionEvents:
    """Return the failure Event of a submission over HTTP; a success has no Event."""
    cluster = f"{job.metadata.namespace}/{job.status.ray_cluster_name}"
    name = f"job {job.status.job_id} to RayCluster {cluster}"
    return ActionEvents(
        failure=warning(EventReason.SUBMISSION_FAILED, "Submit", f"Failed to submit {name}: "),
    )


def finalizer_released(meta: ObjectMeta, limit: timedelta) -> KubeEvent:
    """Return the Event which says that raybus removes its finalizer without having stopped the job.

    An object in quarantine (its state cannot be read) kept raybus from stopping the job. `limit` is
    the time after the deletion at which raybus removes its finalizer anyway.
    """
    note = (
        f"The finalizer is removed {durations.text(limit)} after the deletion, although an object "
        f"in quarantine kept raybus from stopping the Ray job. Stop it by hand if RayJob "
        f"{meta.name} ran on a cluster that it does not own"
    )
    return warning(EventReason.FINALIZER_RELEASED, "Delete", note)


def transitions(job: RayJob, new: RayJobStatus) -> Iterator[KubeEvent]:
    """Yield the Event for a change of the RayJob's state; none if the state stays."""
    old, state = job.status, new.job_deployment_status
    if state == old.job_deployment_status:
        return
    where = f"RayCluster {job.metadata.namespace}/{new.ray_cluster_name}"
    why = untrusted.clipped(": ".join(filter(None, (new.reason, new.message))), MAX_MESSAGE)
    match state:
        case DeploymentState.RUNNING:
            yield normal(EventReason.RUNNING, "Reconcile", f"The job runs on {where}")
        case DeploymentState.WAITING:
            note = f"{where} is ready and waits for a job: set spec.jobId to its submission ID"
            yield normal(EventReason.WAITING, "Reconcile", note)
        case DeploymentState.COMPLETE if new.job_status == JobState.STOPPED:
            yield normal(EventReason.STOPPED, "Reconcile", f"Job {new.job_id} was stopped")
        case DeploymentState.COMPLETE:
            yield normal(EventReason.SUCCEEDED, "Reconcile", f"Job {new.job_id} has succeeded")
        case DeploymentState.FAILED:
            yield warning(EventReason.FAILED, "Reconcile", f"The job has failed. {why}")
        case DeploymentState.RETRYING:
            attempts = (job.spec.backoff_limit or 0) + 1
            note = f"Attempt {new.failed or 0} of {attempts} has failed. {why}"
            yield warning(EventReason.RETRYING, "Reconcile", note)
        case DeploymentState.SUSPENDED:
            note = "The job is suspended; its cluster is deleted"
            yield normal(EventReason.SUSPENDED, "Reconcile", note)
        case DeploymentState.NEW if old.job_deployment_status == DeploymentState.SUSPENDED:
            yield normal(EventReason.RESUMED, "Reconcile", "The job is resumed")
        case _:
            return
