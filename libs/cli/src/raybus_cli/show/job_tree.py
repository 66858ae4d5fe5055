"""The content of `raybus get rayjob/NAME` and `raycronjob/NAME`, as data. Does no I/O."""

from datetime import datetime

import msgspec

from raybus_cli.reading.job_snapshot import CronJobSnapshot, JobSnapshot
from raybus_cli.reading.snapshot import ClusterSnapshot
from raybus_cli.show import job_report, job_rows, tree
from raybus_cli.show.job_report import JobReport
from raybus_cli.show.job_rows import CronJobRow, JobRow
from raybus_cli.show.tree import ClusterTree, LastEvent, PodLine


class JobTree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayJob and what belongs to it."""

    namespace: str
    name: str
    job: JobReport
    submission_mode: str
    entrypoint: str
    ray_cluster: ClusterTree | None = None
    """The cluster of the RayJob; None while it does not exist."""
    submitters: list[PodLine] = []
    """The pods of the Kubernetes Job that submits the job."""
    last_event: LastEvent | None = None
    unseen: list[str] = []


class CronJobTree(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayCronJob and its RayJobs."""

    namespace: str
    name: str
    cron_job: CronJobRow
    jobs: list[JobRow] = []
    """The RayJobs of the RayCronJob, newest first."""
    last_event: LastEvent | None = None
    unseen: list[str] = []


def build_job(snapshot: JobSnapshot, *, now: datetime) -> JobTree:
    """Build the tree of a RayJob."""
    job, cluster = snapshot.job, snapshot.cluster
    spec = job.raw_spec
    return JobTree(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        job=job_report.build(job, now),
        submission_mode=str(spec.get("submissionMode", "")),
        entrypoint=str(spec.get("entrypoint", "")),
        ray_cluster=None
        if cluster is None
        else tree.build_cluster(ClusterSnapshot(cluster=cluster, pods=snapshot.pods), now=now),
        submitters=[tree.build_pod_line(pod, now=now) for pod in snapshot.submitters],
        last_event=tree.find_last_event(snapshot.events, now=now),
        unseen=list(snapshot.unseen),
    )


def build_cron_job(snapshot: CronJobSnapshot, *, now: datetime) -> CronJobTree:
    """Build the tree of a RayCronJob."""
    meta = snapshot.cron_job.metadata
    return CronJobTree(
        namespace=meta.namespace,
        name=meta.name,
        cron_job=job_rows.build_cron_job_row(snapshot.cron_job, now=now),
        jobs=[job_rows.build_job_row(job, now=now) for job in snapshot.jobs],
        last_event=tree.find_last_event(snapshot.events, now=now),
        unseen=list(snapshot.unseen),
    )
