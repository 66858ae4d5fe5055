"""The head pod: the user's template made into the first node of a Ray cluster.

Behaviour: spec raycluster §11.1, §11.2; acceptance cases 42, 49, 85-105.
"""

from cluster_reconciler.config import Config
from cluster_reconciler.resources import autoscaler, gcs_fault_tolerance, ray_pod
from cluster_reconciler.resources.node import Node
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits


def name_prefix(cluster: RayCluster) -> str:
    """Return what a drawn name begins with, the dash before the suffix included."""
    return names.pod_prefix(cluster.metadata.name, labels.HEAD)


def build(cluster: RayCluster, config: Config, *, name: str) -> Body:
    """Build the pod; a name in the user's template wins over the one given, as in KubeRay, and a fixed name over both."""
    node = Node(cluster=cluster, config=config, group=cluster.spec.head_group_spec)
    pod = ray_pod.begin(node)
    if config.head_pod_name_is_fixed:
        pod["metadata"]["name"] = name_prefix(cluster).removesuffix("-")
    else:
        pod["metadata"] |= {"name": pod["metadata"].get("name") or name, "generateName": name_prefix(cluster)}
    if traits.is_autoscaling(cluster):
        pod["spec"]["serviceAccountName"] = autoscaler.service_account_name(cluster)
        autoscaler.append_container(pod, node)
    gcs_fault_tolerance.configure_head(pod, cluster)
    ray_pod.complete(pod, node)
    return pod
