"""The Service in front of all of a cluster's Serve proxies, for clusters that ask for one themselves.

Behaviour: spec raycluster §8.6, §12.2; acceptance case 109.
"""

from typing import Final

from cluster_reconciler.resources import head_service, owner
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SERVICE

NO_PORT: Final = (
    "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head container; "
    "otherwise, the Kubernetes service for Ray Serve will not be created."
)
"""The message for the user when `build` returns None."""


def is_needed(cluster: RayCluster) -> bool:
    """Return whether the user asked for the Service; only the exact value counts."""
    return cluster.metadata.annotations.get(labels.ENABLE_SERVE_SERVICE) == "true"


def build(cluster: RayCluster) -> Body | None:
    """Build the Service over all pods of the cluster; None when the head declares ports, but none for Serve."""
    ports = [
        {"name": port, "port": number}
        for port, number in head_service.port_numbers(cluster).items()
        if port == "serve" or port.startswith("serve-")
    ]
    if not ports:
        return None
    cluster_name = cluster.metadata.name
    own_labels = {
        labels.ORIGIN_NAME: cluster_name,
        labels.ORIGIN_KIND: "RayCluster",
        labels.SERVE: names.checked_label(f"{cluster_name}-serve"),
    }
    spec: Body = {"selector": {labels.CLUSTER: cluster_name}, "ports": ports}
    if cluster.spec.head_group_spec.service_type:
        spec["type"] = cluster.spec.head_group_spec.service_type
    return owner.child(cluster, SERVICE, name=names.serve_service(cluster_name), labels=own_labels, spec=spec)
