"""One Ray node to be, the head or a worker, as the parts of its pod must know it: its addresses and its labels.

Head and worker pods are put together from the same parts in the same order; this module holds their differences.
Behaviour: spec raycluster §2.1 (with its precedence), §11.3; acceptance cases 51, 67, 72, 101-103.
"""

from functools import cached_property
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.resources import services
from common import labels, names, pod_json
from common.api.ray_cluster import HeadGroupSpec, RayCluster, WorkerGroupSpec
from common.feature_gates import Gate
from common.ray import cluster_traits as traits

FIXED: Final = frozenset({labels.NODE_TYPE, labels.GROUP, labels.CLUSTER})
"""What a user may not change: by these we find our pods."""
WAIT_GCS_READY: Final = "wait-gcs-ready"
"""The init container of a worker."""


class ReplicaIndex(msgspec.Struct, frozen=True):
    """A worker's place in its group (spec raycluster §9.7): its replica's index and, if that has several hosts, its name and the host's index."""

    index: int
    host: int = 0
    replica_name: str | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The head of a cluster, or a worker at a place of its group."""

    cluster: RayCluster
    config: Config
    group: HeadGroupSpec | WorkerGroupSpec
    replica: ReplicaIndex | None = None

    @property
    def is_head(self) -> bool:
        """Return whether the node is the head."""
        return isinstance(self.group, HeadGroupSpec)

    @cached_property
    def head_fqdn(self) -> str:
        """The DNS name of the head."""
        name = services.head_name(self.cluster)
        return names.head_fqdn(name, self.cluster.metadata.namespace, self.config.cluster_domain)

    @property
    def gcs_address(self) -> str:
        """The address of the GCS as other pods see it."""
        return f"{self.head_fqdn}:{traits.gcs_port(self.cluster)}"


def pod_labels(node: Node) -> dict[str, str]:
    """Return the labels of a pod: ours, which selectors rely on, under those of the template, the group and the operator's configuration."""
    group, name, node_type = node.group, node.cluster.metadata.name, labels.HEAD if node.is_head else labels.WORKER
    users_own = pod_json.mapping(pod_json.body(group.template, "metadata"), "labels") | (group.labels or {})
    found = {
        labels.IS_RAY_NODE: "yes",
        labels.CLUSTER: name,
        labels.NODE_TYPE: node_type,
        labels.GROUP: group.group_name if isinstance(group, WorkerGroupSpec) else labels.HEAD_GROUP,
        labels.IDENTIFIER: names.checked_label(f"{name}-{node_type}"),
        **labels.BY_OPERATOR,
        **{key: value for key, value in users_own.items() if key not in FIXED},
    }
    replica = node.replica if Gate.MULTI_HOST_INDEXING in node.config.gates else None
    if isinstance(group, WorkerGroupSpec) and replica is not None:
        found[labels.REPLICA_INDEX] = str(replica.index)
        if group.num_of_hosts > 1:
            found[labels.REPLICA_NAME] = replica.replica_name or ""
            found[labels.HOST_INDEX] = str(replica.host)
    found = node.config.default_pod_labels | found
    if traits.is_for_a_service(node.cluster):
        found[labels.SERVE] = "false" if node.is_head else "true"  # the head is let in by hand
    return found
