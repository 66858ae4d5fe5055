"""The head pod: the user's template made into the first node of a Ray cluster.

Behaviour: spec raycluster §11.1, §11.2; acceptance cases 42, 49, 85-105.
"""

from cluster_reconciler.config import Config
from cluster_reconciler.resources import (
    auth,
    autoscaler_container,
    autoscaler_rbac,
    gcs_fault_tolerance,
    pod_labels,
    ray_pod,
    ray_start,
    volumes,
    wait_gcs_ready,
)
from cluster_reconciler.resources.node import Node
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits


def name_prefix(cluster: RayCluster) -> str:
    """Return what a drawn name begins with, the dash before the suffix included."""
    return names.pod_prefix(cluster.metadata.name, labels.HEAD)


def fixed_name(cluster: RayCluster, config: Config) -> str | None:
    """Return the name that the pod has every time, when the operator is configured so."""
    return name_prefix(cluster).removesuffix("-") if config.head_pod_name_is_fixed else None


def build(cluster: RayCluster, config: Config, *, name: str) -> Body:
    """Build the pod; a name in the user's template wins over the one given, as in KubeRay."""
    node = Node(cluster=cluster, config=config, group=cluster.spec.head_group_spec)
    pod = ray_pod.begin(node)
    params = ray_start.head_params(cluster)
    metadata = pod["metadata"]
    metadata["name"] = fixed_name(cluster, config) or metadata.get("name") or name
    if not config.head_pod_name_is_fixed:
        metadata["generateName"] = name_prefix(cluster)
    metadata["labels"] = pod_labels.head(node)
    if traits.is_autoscaling(cluster):
        pod["spec"]["serviceAccountName"] = autoscaler_rbac.service_account_name(cluster)
        autoscaler_container.append(pod, node)
    gcs_fault_tolerance.configure_head(pod, cluster)
    ray_pod.add_metrics_port(pod)
    auth.configure_pod(pod, cluster, init_container=wait_gcs_ready.NAME)
    ray_pod.add_sidecars(pod, config.head_sidecars)
    volumes.add_shared_memory(pod, params)
    if traits.is_autoscaling(cluster):
        volumes.share_logs(pod, with_container=autoscaler_container.NAME)
    ray_pod.finish(pod, node, params)
    return pod
