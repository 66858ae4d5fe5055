"""Build the RayCluster of a RayJob (spec rayjob §4, §7.1, §8.5; acceptance 21, 40, 59)."""

import copy

import msgspec

from common import labels, pod_json
from common.api import ray_cluster, ray_job
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJob, SubmissionMode
from common.ray import owner
from job_reconciler.resources import submitter
from job_reconciler.settings import Config


def build(job: RayJob, config: Config) -> Body:
    """Return the cluster for the current attempt, under the name in the RayJob's status.

    The cluster's spec comes from the RayJob as it is now, so a later attempt has the user's
    corrections. Raises `InvalidSpec` if the command of a sidecar cannot be built.
    """
    meta, mode = job.metadata, job.spec.submission_mode
    annotations = {
        name: value for name, value in meta.annotations.items() if name != labels.SUBMITTED_TO
    }
    spec = copy.deepcopy(job.raw_cluster_spec)
    if mode == SubmissionMode.SIDECAR:
        annotations[labels.DISABLE_PROVISIONED_HEAD_RESTART] = "true"
        _add_sidecar(spec, job, config)
    return {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": ray_cluster.KIND,
        "metadata": {
            "name": job.status.ray_cluster_name,
            "namespace": meta.namespace,
            "labels": {
                **meta.labels,
                **owner.marks(meta.name, ray_job.KIND),
                labels.JOB_SUBMISSION_MODE: mode,
            },
            "annotations": annotations,
            "ownerReferences": owner.reference(meta, ray_job.KIND),
        },
        "spec": spec,
    }


def _add_sidecar(spec: Body, job: RayJob, config: Config) -> None:
    """Append the submitter container to the head pod in the cluster's spec.

    The pod's containers are not restarted, so the head does not restart with the submitter.
    """
    cluster = RayCluster(
        metadata=ObjectMeta(name=job.status.ray_cluster_name, namespace=job.metadata.namespace),
        spec_json=msgspec.Raw(msgspec.json.encode(spec)),
    )
    template = pod_json.ensure_body(pod_json.ensure_body(spec, "headGroupSpec"), "template")
    pod = pod_json.ensure_body(template, "spec")
    pod_json.ensure_list(pod, "containers").append(submitter.build_sidecar(job, cluster, config))
    pod["restartPolicy"] = "Never"
