"""Snapshots of the objects of a RayJob and of a RayCronJob. They are pure data."""

from typing import Final

import msgspec

from common import labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import DeploymentState, RayJob
from raybus_cli.reading.snapshot import KubernetesEvent

FINISHED: Final = frozenset({DeploymentState.COMPLETE, DeploymentState.FAILED})
"""The values of `status.jobDeploymentStatus` of a job that has run to its end."""
ENDED: Final = FINISHED | {DeploymentState.VALIDATION_FAILED}
"""The values of `status.jobDeploymentStatus` after which the job does not run again."""
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""Label whose value is the Kueue LocalQueue that suspends and resumes an object."""


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a RayJob that commands read."""

    job: RayJob
    cluster: RayCluster | None = None
    """The cluster of the present or last attempt; None if it does not exist or is not readable."""
    pods: tuple[Pod, ...] = ()
    """The pods of the cluster, sorted by name."""
    submitters: tuple[Pod, ...] = ()
    """The pods of the Kubernetes Job that submits the job, sorted by name."""
    events: tuple[KubernetesEvent, ...] = ()
    """Events about the RayJob, its cluster and its pods, oldest first."""
    unseen: tuple[str, ...] = ()
    """Objects that could not be read, each with the reason."""


class CronJobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a RayCronJob that commands read."""

    cron_job: RayCronJob
    jobs: tuple[RayJob, ...] = ()
    """The RayJobs that the RayCronJob owns, newest first."""
    events: tuple[KubernetesEvent, ...] = ()
    """Events about the RayCronJob, oldest first."""
    unseen: tuple[str, ...] = ()
    """Objects that could not be read, each with the reason."""


def find_cron_job(job: RayJob) -> str:
    """Return the name of the RayCronJob that created a RayJob; empty if no RayCronJob did."""
    return job.metadata.labels.get(labels.CRON_JOB_NAME, "")
