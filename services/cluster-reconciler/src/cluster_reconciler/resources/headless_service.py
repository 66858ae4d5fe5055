"""The headless Service through which the hosts of a multi-host replica find one another.

Behaviour: spec raycluster §8.5, §12.3; acceptance case 67.
"""

from cluster_reconciler.resources import owner
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SERVICE


def build(cluster: RayCluster) -> Body:
    """Build the Service: addresses of all workers, ready or not."""
    of = cluster.metadata.name
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "selector": {labels.CLUSTER: of, labels.NODE_TYPE: labels.WORKER},
        "publishNotReadyAddresses": True,
    }
    own = {labels.HEADLESS_WORKER_SERVICE: of}
    return owner.child(cluster, SERVICE, name=names.headless_service(of), labels=own, spec=spec)
