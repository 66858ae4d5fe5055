"""Build the head pod, and the Job that removes a deleted cluster's keys from Redis.

Spec raycluster §7.3, §11.1, §11.2; acceptance cases 37, 42, 49, 85-105.
"""

from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.resources import (
    autoscaler,
    drain_hook,
    gcs_fault_tolerance,
    owner,
    ray_pod,
    ray_start,
    tls,
)
from cluster_reconciler.resources.node import RayNode
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB
from common.pod_json import literal
from common.ray import cluster_traits as traits

DEADLINE_SECONDS: Final = 300
_GUIDE: Final = "https://docs.ray.io/en/master/cluster/kubernetes/user-guides/kuberay-gcs-ft.html"


def format_name_prefix(cluster: RayCluster) -> str:
    """Return the prefix of the head pod's generated name, with the dash before the suffix."""
    return names.pod_prefix(cluster.metadata.name, labels.HEAD)


def build(cluster: RayCluster, config: Config, *, name: str) -> Body:
    """Return the head pod. A name in the user's template takes precedence over `name`.

    As in KubeRay, a fixed name (`ENABLE_DETERMINISTIC_HEAD_POD_NAME`) takes precedence over both.
    """
    pod = _build_without_hook(cluster, config, name=name)
    drain_hook.configure(pod, cluster, is_head=True)
    return pod


def _build_without_hook(cluster: RayCluster, config: Config, *, name: str) -> Body:
    node = RayNode(cluster=cluster, config=config, group=cluster.spec.head_group_spec)
    pod = ray_pod.copy_template(node)
    if config.head_pod_name_is_fixed:
        pod["metadata"]["name"] = format_name_prefix(cluster).removesuffix("-")
    else:
        pod["metadata"] |= {
            "name": pod["metadata"].get("name") or name,
            "generateName": format_name_prefix(cluster),
        }
    if traits.is_autoscaling(cluster):
        pod["spec"]["serviceAccountName"] = autoscaler.get_service_account_name(cluster)
        autoscaler.append_container(pod, node)
    gcs_fault_tolerance.configure_head(pod, cluster)
    ray_pod.complete(pod, node)
    return pod


def build_cleanup_job(cluster: RayCluster, config: Config) -> Body:
    """Return the clean-up Job, whose pod is a head pod that runs a short program instead of Ray.

    The Job needs the same credentials, volumes and placement as the head.
    """
    name = names.checked_label(f"{cluster.metadata.name}-redis-cleanup")
    pod = _build_without_hook(cluster, config, name="")
    metadata, container = pod["metadata"], pod_json.ray_container(pod)
    if not metadata["name"]:
        del metadata["name"]
    tls.remove_address_wait(pod)
    metadata["labels"][labels.NODE_TYPE] = labels.REDIS_CLEANUP
    for probe in ("livenessProbe", "readinessProbe"):
        container.pop(probe, None)
    program = _build_script(takes_username=pod_json.has_env(container, "REDIS_USERNAME"))
    container |= ray_start.build_script_fields(config, program, cpu="200m", memory="256Mi")
    pod_json.add_env(
        container,
        literal("RAY_redis_db_connect_retries", "120"),
        literal("RAY_redis_db_connect_wait_milliseconds", "500"),
    )
    pod["spec"] |= {"containers": [container], "restartPolicy": "Never"}
    spec: Body = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": DEADLINE_SECONDS,
        "template": {"metadata": metadata, "spec": pod["spec"]},
    }
    own, annotations = dict(metadata["labels"]), dict(metadata["annotations"])
    return owner.build_child(
        cluster, JOB, name=name, labels=own, annotations=annotations, spec=spec
    )


def _build_script(*, takes_username: bool) -> str:
    """Return the shell command of the clean-up Job.

    The argument for a user name is left out for Ray versions that do not know it.
    """
    username = "username=os.environ.get('REDIS_USERNAME', url.username), " if takes_username else ""
    program = (
        "import os, sys; "
        "from urllib.parse import urlparse; "
        "from ray._private.gcs_utils import cleanup_redis_storage; "
        "first = os.environ.get('RAY_REDIS_ADDRESS', '').split(',')[0]; "
        "url = urlparse(first if '://' in first else 'redis://' + first); "
        "done = cleanup_redis_storage(host=url.hostname, port=url.port, "
        f"{username}password=os.environ.get('REDIS_PASSWORD', url.password or ''), "
        "use_ssl=url.scheme == 'rediss', "
        "storage_namespace=os.environ.get('RAY_external_storage_namespace')); "
        "sys.exit(0 if done else 1)"
    )
    return f'echo "To clean up by hand, see {_GUIDE}" && python -c "{program}"'
