"""Actions that only the plans of this service contain.

`execute.py` executes these actions. All other actions are in `common.runtime.actions`.
"""

from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJobStatus
from common.runtime.actions import Action, Create, UpdateStatus


class UpdateJobStatus(UpdateStatus, frozen=True, kw_only=True):
    """Replace the status of the RayJob."""

    status: RayJobStatus

    def __str__(self) -> str:
        status = self.status
        return (
            f"write status: {status.job_deployment_status or 'New'}, "
            f"job {status.job_status or 'unknown'}, cluster {status.ray_cluster_name or '-'}"
        )


class SyncPodGroup(Action, frozen=True, kw_only=True):
    """Create the PodGroup of the RayJob, or resize it to the size in `body`."""

    body: Body

    def __str__(self) -> str:
        return f"size PodGroup {self.body['metadata']['name']}"


class CreateHeadService(Create, frozen=True, kw_only=True):
    """Create the RayJob's own head Service.

    If another owner has an object of that name, the next reconcile reads and reports it.
    """


class SubmitJob(Action, frozen=True, kw_only=True):
    """Submit the job to Ray's dashboard over HTTP (HTTPMode).

    Ray refuses a second job with the same ID, so a repeated submission does not run the job twice.
    """

    cluster: RayCluster

    def __str__(self) -> str:
        return f"submit the job to RayCluster {self.cluster.metadata.name}"


class StopJob(Action, frozen=True, kw_only=True):
    """Request Ray once to stop the job."""

    cluster: RayCluster
    job_id: str
    must_succeed: bool = False
    """Whether a failure ends the plan; otherwise a failure is only logged."""

    def __str__(self) -> str:
        return f"stop job {self.job_id} on RayCluster {self.cluster.metadata.name}"
