"""Identity check of a dashboard: whether it answers for the other cluster of its RayService.

A pod may take over the address of an earlier one a moment later, and a connection or a name may still lead to it. Such an answer
must neither show that a cluster serves nor take this cluster's config. It is the other cluster's when it names nodes of that one
and none of this one.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.ray import serve_status
from common.ray.view import Reading

SILENT: Final = 3
"""Failed reads that make a silent dashboard a problem; a wrong identity is one at once."""


class ClusterAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and the addresses at which its pods are known to be."""

    name: str
    addresses: frozenset[str]


def addresses_of(cluster: RayCluster, pods: Iterable[Pod] = ()) -> ClusterAddresses:
    """Return a cluster with the addresses of its head in the status and of its known pods."""
    known = (cluster.status.head.pod_ip, *(pod.status.pod_ip for pod in pods))
    return ClusterAddresses(name=cluster.metadata.name, addresses=frozenset(each for each in known if each))


def verify_identity(reading: Reading, own: ClusterAddresses, other: ClusterAddresses | None) -> Reading:
    """Return an answer, or that it was the other cluster's."""
    if other is None or reading.details is None:
        return reading
    nodes = serve_status.nodes(reading.details)
    if nodes & own.addresses or not nodes & other.addresses:
        return reading
    text = f"the dashboard of RayCluster {own.name} answers for RayCluster {other.name}"
    return Reading(problem=text, failures=SILENT)
