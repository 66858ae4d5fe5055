"""Build the submitter of a RayJob: a Kubernetes Job, or a container in the head pod.

Spec rayjob §4, §8.2, §8.3, §8.5; acceptance 44-50, 54, 59.
"""

import copy
from typing import Final

from common import labels, pod_json
from common.api import ray_job
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_job import SUBMITTER_CONTAINER, RayJob
from common.feature_gates import FeatureGate
from common.kube.resources import JOB
from common.pod_json import literal
from common.ray import owner, token_auth
from job_reconciler.resources import command
from job_reconciler.settings import Config

DEFAULT_BACKOFF_LIMIT: Final = 2
"""`backoffLimit` of the submitter Job: retries of a failed submission. KubeRay's default."""
_RESOURCES: Final = {
    "limits": {"cpu": "1", "memory": "1Gi"},
    "requests": {"cpu": "500m", "memory": "200Mi"},
}


def build(job: RayJob, cluster: RayCluster, config: Config) -> Body:
    """Return the Kubernetes Job that submits the Ray job to `cluster` and follows its log.

    Raises `InvalidSpec` if the command cannot be built.
    """
    spec, meta = job.spec, job.metadata
    template = build_template(job, cluster)
    container = pod_json.containers(template)[0]
    if not container.get("command"):
        container.update(_shell(command.build_for_job(job), config))
    _add_environment(container, job, cluster)
    token_auth.add_volume(template, cluster)
    marks = {
        **owner.marks(meta.name, ray_job.KIND),
        labels.APP_CREATED_BY: labels.KUBERAY_OPERATOR,
    }
    pod_json.ensure_body(pod_json.ensure_body(template, "metadata"), "labels").update(marks)
    limit = spec.submitter_config.backoff_limit if spec.submitter_config is not None else None
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": marks,
            "ownerReferences": owner.reference(meta, ray_job.KIND),
        },
        "spec": {
            "backoffLimit": DEFAULT_BACKOFF_LIMIT if limit is None else limit,
            "template": template,
        },
    }


def build_template(job: RayJob, cluster: RayCluster) -> Body:
    """Return the pod template of the submitter Job: the user's, or a default template."""
    if job.spec.submitter_pod_template is not None:
        return copy.deepcopy(job.spec.submitter_pod_template)
    return {"spec": {"containers": [build_default_container(cluster)], "restartPolicy": "Never"}}


def build_sidecar(job: RayJob, cluster: RayCluster, config: Config) -> Body:
    """Return the container that submits the job from within the head pod of `cluster`."""
    restarts = FeatureGate.SIDECAR_SUBMITTER_RESTART in config.gates
    container = build_default_container(cluster)
    container.update(_shell(command.build_for_sidecar(job, restarts=restarts), config))
    _add_environment(container, job, cluster)
    if restarts:
        container["restartPolicy"] = "OnFailure"
    return container


def build_default_container(cluster: RayCluster) -> Body:
    """Return the container of a submitter that the user does not configure.

    It has the image of the head, so that both have the same version of Ray.
    """
    head = pod_json.ray_container(cluster.spec.head_group_spec.template)
    return {
        "name": SUBMITTER_CONTAINER,
        "image": pod_json.text(head, "image"),
        "resources": copy.deepcopy(_RESOURCES),
    }


def _shell(script: str, config: Config) -> Body:
    options = "-cel" if config.uses_login_shell else "-ce"
    return {"command": ["/bin/bash", options, "--"], "args": [script]}


def _add_environment(container: Body, job: RayJob, cluster: RayCluster) -> None:
    """Append the environment variables by which a user's own command finds Ray and its job."""
    pod_json.add_env(
        container,
        literal("PYTHONUNBUFFERED", "1"),
        literal("RAY_DASHBOARD_ADDRESS", job.status.dashboard_url),
        literal("RAY_JOB_SUBMISSION_ID", job.status.job_id),
    )
    token_auth.configure_container(container, cluster)
