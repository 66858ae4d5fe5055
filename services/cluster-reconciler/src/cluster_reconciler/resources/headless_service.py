"""The headless Service through which the hosts of a multi-host replica find one another.

Behaviour: spec raycluster §8.5, §12.3; acceptance case 67.
"""

from cluster_reconciler.resources import owner
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster


def name(cluster: RayCluster) -> str:
    """Return the Service's name."""
    return names.headless_service(cluster.metadata.name)


def list_labels(cluster: RayCluster) -> dict[str, str]:
    """Return the labels by which the Service is found again."""
    return {labels.HEADLESS_WORKER_SERVICE: cluster.metadata.name}


def build(cluster: RayCluster) -> Body:
    """Build the Service: addresses of all workers, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(cluster, name=name(cluster), labels=list_labels(cluster)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": {labels.CLUSTER: cluster.metadata.name, labels.NODE_TYPE: labels.WORKER},
            "publishNotReadyAddresses": True,
        },
    }
