"""Batch schedulers: what they need in the objects of a RayJob, and the RayJob's PodGroup.

Spec rayjob §16. The labels of a RayJob are always copied to its RayCluster, so that the pods of the
cluster are scheduled like those of a cluster without a job.
"""

from typing import Final

import msgspec

from common import pod_json, quantity
from common.api import ray_job
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJob, SubmissionMode
from common.feature_gates import FeatureGate
from common.ray import batch_schedulers, desired_resources, owner
from common.ray import cluster_traits as traits
from common.ray.batch_schedulers import VOLCANO_POD_GROUP, Copies, TaskGroup
from common.ray.desired_resources import Amounts
from job_reconciler.resources import submitter
from job_reconciler.settings import Config

SUBMITTER_GROUP: Final = "submittergroup"
"""Name of the group of submitter pods; the other groups are named as in the RayCluster."""
_KAI_REFUSAL: Final = (
    "KAI-Scheduler does not support RayJob with K8sJobMode: the submitter pod is created after "
    "RayCluster is ready, preventing proper gang scheduling; set spec.submissionMode to "
    "SidecarMode or HTTPMode"
)


class JobBatchScheduler(msgspec.Struct, frozen=True):
    """A scheduler that needs nothing in a RayJob's objects, such as the default scheduler."""

    def find_violation(self, job: RayJob) -> str | None:  # noqa: ARG002  (for others)
        """Return why the scheduler cannot run a job; None if it can run the job."""
        return None

    def mark_cluster(self, job: RayJob, body: Body) -> None:
        """Add the fields that the scheduler reads to `body`, the manifest of a job's RayCluster."""

    def mark_submitter(self, job: RayJob, body: Body) -> None:
        """Add the fields that the scheduler reads to `body`, the manifest of the submitter Job."""

    def build_pod_group(self, job: RayJob) -> Body | None:  # noqa: ARG002  (for others)
        """Return the PodGroup that must exist before the job's cluster; None if none is needed."""
        return None

    def build_last_pod_group(self, job: RayJob, cluster: RayCluster | None) -> Body | None:  # noqa: ARG002
        """Return the PodGroup for the pods that are left after the job's end, or None.

        `cluster` is the job's cluster as it is now; None if it is gone.
        """
        return None


class YuniKornForJobs(JobBatchScheduler, frozen=True):
    """YuniKorn, which reads from every pod of a gang how many pods the gang has.

    A gang is a set of pods that are scheduled all at once or not at all.
    """

    def mark_cluster(self, job: RayJob, body: Body) -> None:
        if _has_submitter_job(job):
            self._mark(job, body["metadata"])

    def mark_submitter(self, job: RayJob, body: Body) -> None:
        template = body["spec"]["template"]
        metadata = pod_json.ensure_body(template, "metadata")
        if self._mark(job, metadata):
            metadata["annotations"][batch_schedulers.TASK_GROUP_NAME] = SUBMITTER_GROUP
        template["spec"]["schedulerName"] = batch_schedulers.YUNIKORN

    @staticmethod
    def _mark(job: RayJob, metadata: Body) -> bool:
        """Add YuniKorn's labels and the description of a gang; return whether the job is a gang.

        A job on a cluster that exists already is no gang unless its annotation describes one.
        """
        own = job.metadata
        batch_schedulers.copy_labels(batch_schedulers.YUNIKORN_COPIES, own.labels, metadata)
        if batch_schedulers.GANG not in own.labels:
            return False
        groups = own.annotations.get(batch_schedulers.TASK_GROUPS) or _describe_groups(job)
        if groups is None:
            return False
        pod_json.ensure_body(metadata, "annotations")[batch_schedulers.TASK_GROUPS] = groups
        return True


class VolcanoForJobs(JobBatchScheduler, frozen=True):
    """Volcano, with one PodGroup for the pods of the job's cluster and its submitter.

    The resources of the PodGroup include those of the submitter. Its minimum number of pods does
    not count the submitter, because the submitter is created when the other pods are ready.
    """

    def find_violation(self, job: RayJob) -> str | None:
        meta = job.metadata
        if _build_own_cluster(job) is None:
            return None
        return batch_schedulers.find_topology_violation(
            meta.labels, meta.namespace, pod_group_name(job)
        )

    def mark_cluster(self, job: RayJob, body: Body) -> None:
        if _has_submitter_job(job):
            self._mark(job, body["metadata"], task="")

    def mark_submitter(self, job: RayJob, body: Body) -> None:
        template = body["spec"]["template"]
        self._mark(job, pod_json.ensure_body(template, "metadata"), task=SUBMITTER_GROUP)
        template["spec"]["schedulerName"] = batch_schedulers.VOLCANO

    @staticmethod
    def _mark(job: RayJob, metadata: Body, *, task: str) -> None:
        copies: Copies = batch_schedulers.VOLCANO_COPIES
        batch_schedulers.copy_labels(copies, job.metadata.labels, metadata)
        if _build_own_cluster(job) is not None:  # else there is no PodGroup
            marks = batch_schedulers.volcano_marks(pod_group_name(job), task)
            pod_json.ensure_body(metadata, "annotations").update(marks)

    def build_pod_group(self, job: RayJob) -> Body | None:
        cluster = _build_own_cluster(job)
        if cluster is None:
            return None
        members, amounts = _measure(cluster)
        desired_resources.add(amounts, _get_submitter_amounts(job, cluster))
        return _build_pod_group(job, members, amounts)

    def build_last_pod_group(self, job: RayJob, cluster: RayCluster | None) -> Body | None:
        if job.spec.cluster_selector or not job.status.ray_cluster_name:
            return None
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            return _build_pod_group(job, 0, {})
        return _build_pod_group(job, *_measure(cluster))


class Kai(JobBatchScheduler, frozen=True):
    """KAI-Scheduler; a RayJob with K8sJobMode is refused.

    KAI-Scheduler's gang cannot wait for a submitter pod that is created only when the cluster is
    ready.
    """

    def find_violation(self, job: RayJob) -> str | None:
        return _KAI_REFUSAL if _has_submitter_job(job) else None


def scheduler(config: Config) -> JobBatchScheduler:
    """Return the batch scheduler that the operator is configured to use."""
    if FeatureGate.KUBERNETES_WAS in config.gates:
        return JobBatchScheduler()
    return _SCHEDULERS.get(config.batch_scheduler, JobBatchScheduler())


_SCHEDULERS: Final[dict[str, JobBatchScheduler]] = {
    batch_schedulers.VOLCANO: VolcanoForJobs(),
    batch_schedulers.YUNIKORN: YuniKornForJobs(),
    batch_schedulers.KAI: Kai(),
}


def pod_group_name(job: RayJob) -> str:
    """Return the name of the PodGroup for a job and its clusters."""
    return batch_schedulers.volcano_group_name(job.metadata.name)


def resize(have: Body, want: Body) -> Body | None:
    """Return the existing PodGroup `have` with the size of `want`; None if the sizes are equal."""
    spec = want["spec"]
    numbers = {field: spec[field] for field in ("minMember", "minResources")}
    return batch_schedulers.resize_volcano_group(have, numbers)


def find_other_owner(have: Body, job: RayJob) -> str | None:
    """Return the controller of a PodGroup as `<kind> <name>`; None if it is this job.

    A RayCluster with the name of the job has a PodGroup of the same name.
    """
    return owner.other(msgspec.convert(have["metadata"], ObjectMeta), job.metadata)


def _build_pod_group(job: RayJob, members: int, amounts: Amounts) -> Body:
    meta = job.metadata
    numbers = {"minMember": members, "minResources": desired_resources.as_text(amounts)}
    return {
        "apiVersion": VOLCANO_POD_GROUP.api_version,
        "kind": VOLCANO_POD_GROUP.kind,
        "metadata": {
            "name": pod_group_name(job),
            "namespace": meta.namespace,
            "annotations": dict(meta.annotations),
            "ownerReferences": owner.reference(meta, ray_job.KIND),
        },
        "spec": batch_schedulers.build_volcano_spec(meta.labels, numbers),
        "status": {"phase": "Pending"},
    }


def _measure(cluster: RayCluster) -> tuple[int, Amounts]:
    """Return how many pods of a cluster must be scheduled at once, and their resources.

    With an autoscaler these are the head and the minimum number of workers, otherwise all pods. The
    resources are those of the pod templates.
    """
    if traits.is_autoscaling(cluster):
        members = traits.least_workers(cluster) + 1
        total = desired_resources.totals(cluster, lambda group: group.min_replicas or 0)
    else:
        members, total = traits.desired_workers(cluster) + 1, desired_resources.totals(cluster)
    return members, {name: quantity.parse(amount) for name, amount in total.items()}


def _get_submitter_amounts(job: RayJob, cluster: RayCluster) -> Amounts:
    """Return the resources of the submitter, which belongs to no Ray group."""
    match job.spec.submission_mode:
        case SubmissionMode.K8S_JOB:
            return desired_resources.of_pod(submitter.build_template(job, cluster))
        case SubmissionMode.SIDECAR:
            container = submitter.build_default_container(cluster)
            return desired_resources.of_pod({"spec": {"containers": [container]}})
        case _:
            return {}


def _describe_groups(job: RayJob) -> str | None:
    """Return YuniKorn's description of a job's pods; None if the job has no cluster of its own."""
    cluster = _build_own_cluster(job)
    if cluster is None:
        return None
    head = cluster.spec.head_group_spec.template
    members = [("headgroup", head, 1)] + [
        (group.group_name, group.template, (group.min_replicas or 0) * traits.hosts(group))
        for group in traits.worker_groups(cluster)
    ]
    members.append((SUBMITTER_GROUP, submitter.build_template(job, cluster), 1))
    return batch_schedulers.encode_task_groups(
        TaskGroup(
            name=name,
            template=template,
            amounts=desired_resources.of_pod(template),
            min_members=least,
        )
        for name, template, least in members
    )


def _build_own_cluster(job: RayJob) -> RayCluster | None:
    """Return the cluster that the spec describes; None for a job on an existing cluster."""
    if job.spec.cluster_selector or job.spec.ray_cluster_spec is None:
        return None
    return RayCluster(
        metadata=ObjectMeta(name=job.status.ray_cluster_name, namespace=job.metadata.namespace),
        spec_json=msgspec.Raw(msgspec.json.encode(job.raw_cluster_spec)),
    )


def _has_submitter_job(job: RayJob) -> bool:
    return job.spec.submission_mode == SubmissionMode.K8S_JOB
