"""A worker pod: the group's template made into a node that joins the head.

Behaviour: spec raycluster §11.1, §11.2; acceptance cases 86-105.
"""

from cluster_reconciler.config import Config
from cluster_reconciler.resources import (
    auth,
    gcs_fault_tolerance,
    pod_labels,
    ray_pod,
    ray_start,
    volumes,
    wait_gcs_ready,
)
from cluster_reconciler.resources.node import Node
from cluster_reconciler.resources.pod_labels import ReplicaIndex
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.ray import cluster_traits as traits


def name_prefix(cluster: RayCluster, group: WorkerGroupSpec) -> str:
    """Return what a drawn name begins with, the dash before the suffix included."""
    return names.pod_prefix(f"{cluster.metadata.name}-{group.group_name}", labels.WORKER)


def build(cluster: RayCluster, group: WorkerGroupSpec, config: Config, *, name: str, replica: ReplicaIndex) -> Body:
    """Build the pod at a place of its group."""
    node = Node(cluster=cluster, config=config, group=group)
    pod = ray_pod.begin(node)
    params = ray_start.worker_params(group, gcs_address=node.gcs_address)
    pod["metadata"] |= {
        "name": name,
        "generateName": name_prefix(cluster, group),
        "labels": pod_labels.worker(node, group, replica),
    }
    wait_gcs_ready.append(pod, node)
    gcs_fault_tolerance.configure_worker(pod, cluster)
    ray_pod.add_metrics_port(pod)
    if traits.is_autoscaling(cluster) and traits.autoscaler_version(cluster) == "v2":
        pod["spec"]["restartPolicy"] = "Never"
    auth.configure_pod(pod, cluster, init_container=wait_gcs_ready.NAME)
    ray_pod.add_sidecars(pod, config.worker_sidecars)
    volumes.add_shared_memory(pod, params)
    ray_pod.finish(pod, node, params)
    return pod
