"""The environment of the Ray container and of init containers, in KubeRay's order.

The order matters where a name repeats: Kubernetes lets the last one win, and the user's own come first.
Behaviour: spec raycluster §11.8 (last paragraph), §11.9 rows 6-15; acceptance cases 91, 96, 103.
"""

from typing import Final

from cluster_reconciler.resources.node import Node
from common import labels, pod_json
from common.api.opaque import Body
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits

CLUSTER_NAME: Final = from_field("RAY_CLUSTER_NAME", f"metadata.labels['{labels.CLUSTER}']")
CLUSTER_NAMESPACE: Final = from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace")

_SERVICE_TIMEOUTS: Final = (
    ("RAY_timeout_ms_task_wait_for_death_info", "0"),
    ("RAY_gcs_server_request_timeout_seconds", "5"),
    ("RAY_SERVE_KV_TIMEOUT_S", "5"),
)
"""Shorter waits inside Ray, for clusters that serve requests."""


def complete_ray_container(pod: Body, node: Node, *, ray_start: str) -> None:
    """Append the environment that every Ray container needs of its cluster."""
    container = pod_json.ray_container(pod)
    pod_json.add_missing_env(container, *node.config.default_container_envs)
    pod_json.add_env(container, *_always(node, ray_start))
    pod_json.add_missing_env(container, *_unless_named(node))
    if node.is_head:
        pod_json.add_env(container, _usage_tags(node))
    pod_json.add_missing_env(container, literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"))


def complete_init_containers(pod: Body, node: Node) -> None:
    """Give every init container, the user's too, the address of the head."""
    for container in pod_json.bodies(pod["spec"], "initContainers"):
        pod_json.add_env(container, *_head_address(node))


def _always(node: Node, ray_start: str) -> list[Body]:
    return [
        *([] if node.is_head else _head_address(node)),
        CLUSTER_NAME,
        CLUSTER_NAMESPACE,
        from_field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        from_field("RAY_NODE_TYPE_NAME", f"metadata.labels['{labels.GROUP}']"),
        literal("KUBERAY_GEN_RAY_START_CMD", ray_start),
    ]


def _unless_named(node: Node) -> list[Body]:
    timeouts = _SERVICE_TIMEOUTS if traits.is_for_a_service(node.cluster) else ()
    return [
        literal("RAY_PORT", node.gcs_port),
        *(literal(name, value) for name, value in timeouts),
        literal("RAY_ADDRESS", f"127.0.0.1:{node.gcs_port}" if node.is_head else node.gcs_address),
        literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
    ]


def _usage_tags(node: Node) -> Body:
    tags = f"kuberay_version={node.config.version};kuberay_crd={traits.creator_kind(node.cluster)}"
    return literal("RAY_USAGE_STATS_EXTRA_TAGS", tags)


def _head_address(node: Node) -> list[Body]:
    return [literal("FQ_RAY_IP", node.head_fqdn), literal("RAY_IP", node.head_short_name)]
