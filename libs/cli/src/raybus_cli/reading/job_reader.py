"""Reads the snapshots of RayJobs and RayCronJobs."""

from common import errors, labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob, SubmissionMode
from common.kube.client import KubeClient
from common.kube.resources import (
    POD,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    find_name_violation,
)
from common.ray import owner
from raybus_cli.reading import kinds, reader
from raybus_cli.reading.job_snapshot import CronJobSnapshot, JobSnapshot
from raybus_cli.reading.kinds import NamedTarget
from raybus_cli.reading.reader import SnapshotReader


async def read_job(kube: KubeClient, namespace: str, name: str) -> JobSnapshot:
    """Read a RayJob and all objects that belong to it; raise `NoSuchObject` if there is none."""
    job = await reader.read_ray_job(kube, namespace, name)
    reading = SnapshotReader(kube, namespace)
    cluster = await _read_cluster(reading, job)
    pods = [] if cluster is None else await reading.list_of_clusters(POD, Pod, [cluster])
    submitters: list[Pod] = []
    if job.raw_spec.get("submissionMode", SubmissionMode.K8S_JOB) == SubmissionMode.K8S_JOB:
        submitters = await reading.list_labelled(POD, Pod, {labels.KUBERNETES_JOB_NAME: name})
    objects = {
        (RAY_JOB.kind, name),
        ("Job", name),
        *((POD.kind, pod.metadata.name) for pod in (*pods, *submitters)),
    }
    if cluster is not None:
        objects.add((RAY_CLUSTER.kind, cluster.metadata.name))
    return JobSnapshot(
        job=job,
        cluster=cluster,
        pods=_sort_by_name(pods),
        submitters=_sort_by_name(submitters),
        events=await reading.read_events(objects),
        unseen=tuple(sorted(reading.unseen)),
    )


async def _read_cluster(reading: SnapshotReader, job: RayJob) -> RayCluster | None:
    name = job.status.ray_cluster_name
    if not name or find_name_violation(RAY_CLUSTER, name):
        return None
    return await reading.read_one(RAY_CLUSTER, RayCluster, name)


def _sort_by_name(pods: list[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=lambda pod: pod.metadata.name))


async def find_newest_run(kube: KubeClient, namespace: str, name: str) -> NamedTarget:
    """Return the newest RayJob of a RayCronJob; raise `Rejected` if it has none."""
    cron_job = await reader.read_ray_cron_job(kube, namespace, name)
    runs = await _list_runs(SnapshotReader(kube, namespace), cron_job)
    if not runs:
        raise errors.Rejected(
            f"RayCronJob {name} has no RayJob; see why with 'raybus explain raycronjob/{name}'"
        )
    return NamedTarget(kinds.JOB, runs[0].metadata.name)


async def read_cron_job(kube: KubeClient, namespace: str, name: str) -> CronJobSnapshot:
    """Read a RayCronJob and its RayJobs; raise `NoSuchObject` if there is no such RayCronJob."""
    cron_job = await reader.read_ray_cron_job(kube, namespace, name)
    reading = SnapshotReader(kube, namespace)
    return CronJobSnapshot(
        cron_job=cron_job,
        jobs=await _list_runs(reading, cron_job),
        events=await reading.read_events({(RAY_CRON_JOB.kind, name)}),
        unseen=tuple(sorted(reading.unseen)),
    )


async def _list_runs(reading: SnapshotReader, cron_job: RayCronJob) -> tuple[RayJob, ...]:
    """Return the RayJobs of a RayCronJob, newest first."""
    selected = {labels.CRON_JOB_NAME: cron_job.metadata.name}
    jobs = await reading.list_labelled(RAY_JOB, RayJob, selected)
    owned = [job for job in jobs if owner.owns(cron_job.metadata, job.metadata)]
    return tuple(
        sorted(
            owned,
            key=lambda job: (str(job.metadata.creation_timestamp or ""), job.metadata.name),
            reverse=True,
        )
    )
