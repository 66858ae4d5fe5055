"""Build the head Service of a RayJob, `<RayJob>-head-svc`, and point it at another cluster.

Spec rayjob §4, §7.4; acceptance 33-35.
"""

from common import labels
from common.api import ray_job
from common.api.core import Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJob
from common.ray import head_service, owner
from job_reconciler.settings import Config


def build(job: RayJob, cluster: RayCluster, config: Config) -> Body:
    """Return the head Service of a RayJob, which selects the head of `cluster`."""
    return head_service.build(
        job.metadata,
        ray_job.KIND,
        cluster=cluster.metadata.name,
        config=cluster.raw_spec,
        has_cluster_ip=config.head_service_has_cluster_ip,
    )


def belongs_to(service: Service, job: RayJob) -> bool:
    """Return whether a Service with the name of the job's head Service belongs to the job.

    A RayJob that is deleted with `--cascade=orphan` leaves its Service without an owner. Such a
    Service belongs to a new RayJob of the same name, if the Service's labels name the job.
    """
    meta = service.metadata
    if any(reference.controller for reference in meta.owner_references):
        return owner.other(meta, job.metadata) is None
    return owner.marks(job.metadata.name, ray_job.KIND).items() <= meta.labels.items()


def repointed(service: Service, job: RayJob, cluster: RayCluster, config: Config) -> Body | None:
    """Return the merge patch that makes an existing Service select the head of `cluster`.

    None if the Service selects that head already, or does not belong to the job.
    """
    is_right = service.spec.selector.get(labels.CLUSTER) == cluster.metadata.name
    if is_right or not belongs_to(service, job):
        return None
    return head_service.repoint(service, build(job, cluster, config))
