"""The OpenShift Route that replaces the Ingress there.

Behaviour: spec raycluster §8.2, §12.5.
"""

import hashlib
from typing import Final

from cluster_reconciler.resources import head_service, ingress, owner
from common import names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource

ROUTE: Final = Resource(group="route.openshift.io", kind="Route", plural="routes")
HASH: Final = 10
"""Characters of a hash in a name."""
GROUPS: Final = frozenset({"route.openshift.io", "security.openshift.io", "config.openshift.io"})
"""API groups that only OpenShift has."""


def name(cluster: RayCluster) -> str:
    """Return the Route's name, cut so that name and namespace fit one DNS label; where no room is left, a hash distinguishes clusters."""
    room = 51 - len(cluster.metadata.namespace)
    if room <= 0:
        return f"r{hashlib.sha256(cluster.metadata.name.encode()).hexdigest()[:HASH]}"
    return names.checked(f"{cluster.metadata.name}-head-route"[:room])


def build(cluster: RayCluster) -> Body:
    """Build the Route to the dashboard."""
    spec = {
        "to": {"kind": "Service", "name": head_service.name(cluster), "weight": 100},
        "port": {"targetPort": ingress.dashboard_port(cluster)},
        "wildcardPolicy": "None",
    }
    body = owner.child(cluster, ROUTE, name=name(cluster), labels=ingress.own_labels(cluster), spec=spec)
    if cluster.metadata.annotations:
        body["metadata"]["annotations"] = dict(cluster.metadata.annotations)
    return body
