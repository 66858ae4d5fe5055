"""Graceful drain: a Python module in a ConfigMap lets Ray Serve's proxies close connections.

The selector of a Service affects new connections only. Clients that keep their connections stay
with the old cluster until it is deleted. The feature is off unless a RayService or the operator's
configuration asks for it. It overrides no setting of the user: the shell that runs `ray start`
appends to an existing PYTHONPATH, also the image's, and sets Serve's proxy callback only if there
is none.
"""

from importlib import resources
from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner, ray_start
from cluster_reconciler.resources.node import RayNode
from common import feature_gates, labels, pod_json
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONFIG_MAP
from common.ray import cluster_traits as traits

CALLBACK: Final = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
MODULE: Final = "raybus_drain"
FILE: Final = f"{MODULE}.py"
CODE_VOLUME: Final = "raybus-drain"
CODE_PATH: Final = "/etc/raybus/drain"
POD_VOLUME: Final = "raybus-pod"
POD_PATH: Final = "/etc/raybus/pod"
TEXT: Final = (
    resources.files("cluster_reconciler.in_pod").joinpath(FILE).read_text(encoding="utf-8")
)

_EXPORTS: Final = (
    f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{CODE_PATH}"; '
    f'export {CALLBACK}="${{{CALLBACK}:-{MODULE}.middlewares}}"; '
)


def is_asked_for(cluster: RayCluster, config: Config) -> bool:
    """Return whether a cluster of a RayService should drain gracefully."""
    annotations, default = cluster.metadata.annotations, config.drains_gracefully
    return traits.is_for_a_service(cluster) and feature_gates.is_on(
        annotations, labels.GRACEFUL_DRAIN, default=default
    )


def is_on(cluster: RayCluster, config: Config) -> bool:
    """Return whether graceful drain is requested for a cluster and no setting prevents it."""
    return is_asked_for(cluster, config) and find_obstacle(cluster) is None


def find_obstacle(cluster: RayCluster) -> str | None:
    """Return which setting of the user prevents the graceful drain; None if none does.

    A conflict in one group turns the feature off for the whole cluster.
    """
    groups = {"the head group": cluster.spec.head_group_spec.template} | {
        f"worker group {group.group_name}": group.template
        for group in traits.worker_groups(cluster)
    }
    is_overwritten = ray_start.is_overwritten(cluster.metadata.annotations)
    for where, template in groups.items():
        if pod_json.has_env(pod_json.ray_container(template), CALLBACK):
            return (
                f"{where} sets {CALLBACK} itself; remove it, or set {labels.GRACEFUL_DRAIN} to "
                "false"
            )
        if is_overwritten or ray_start.is_users_own(template):
            return (
                f"{where} runs ray start itself; let the operator run it, or set "
                f"{labels.GRACEFUL_DRAIN} to false"
            )
    return None


def get_config_map_name(cluster: RayCluster) -> str:
    """Return the name of the ConfigMap that contains the Python module for the drain."""
    return f"{cluster.metadata.name}-drain"


def build_config_map(cluster: RayCluster) -> Body:
    """Return the ConfigMap that contains the Python module for the graceful drain."""
    return owner.build_child(
        cluster, CONFIG_MAP, name=get_config_map_name(cluster), data={FILE: TEXT}
    )


def configure_pod(pod: Body, node: RayNode) -> str:
    """Mount the drain module and the pod's own annotations in a pod, if graceful drain is on.

    Returns the shell commands that export the environment before `ray start`; empty if it is off.
    """
    if not is_on(node.cluster, node.config):
        return ""
    pod["metadata"]["annotations"][labels.GRACEFUL_DRAIN] = "true"
    annotations: Json = {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}
    code: Json = {"name": CODE_VOLUME, "configMap": {"name": get_config_map_name(node.cluster)}}
    mounts = pod_json.ensure_list(pod_json.ray_container(pod), "volumeMounts")
    described: Json = {"name": POD_VOLUME, "downwardAPI": {"items": [annotations]}}
    for volume, path in ((code, CODE_PATH), (described, POD_PATH)):
        pod_json.add_missing_volume(pod, volume)
        mounts.append({"name": volume["name"], "mountPath": path, "readOnly": True})
    return _EXPORTS
