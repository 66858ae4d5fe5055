"""A Ray node, head or worker, for which a pod is to be created: its addresses, labels and name.

Head and worker pods are built from the same parts in the same order; this module contains their
differences. Spec raycluster §2.1 (with its precedence), §11.3; acceptance cases 51, 67, 72,
101-103.
"""

import hashlib
from functools import cached_property
from itertools import count
from typing import Final

import msgspec

from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from cluster_reconciler.resources import services
from common import labels, names, pod_json
from common.api.ray_cluster import HeadGroupSpec, RayCluster, WorkerGroupSpec
from common.feature_gates import FeatureGate
from common.ray import cluster_traits as traits

FIXED: Final = frozenset({labels.NODE_TYPE, labels.GROUP, labels.CLUSTER})
"""Labels that a user cannot change, because raybus finds its pods by them."""
WAIT_GCS_READY: Final = "wait-gcs-ready"
"""Name of a worker's init container that waits for the GCS."""
NAME_EPOCH_SECONDS: Final = 3600
"""Seconds for which a new pod at the same position in a group gets the same name.

The cache remembers the names of deleted pods at least as long.
"""


class ReplicaIndex(msgspec.Struct, frozen=True):
    """Position of a worker in its group: replica, and host in the replica (spec raycluster §9.7).

    `replica_name` identifies a multi-host replica; its pods have the name as a label.
    """

    index: int
    host: int = 0
    replica_name: str = ""


class RayNode(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The head of a cluster, or any worker of a group."""

    cluster: RayCluster
    config: Config
    group: HeadGroupSpec | WorkerGroupSpec

    @property
    def is_head(self) -> bool:
        return isinstance(self.group, HeadGroupSpec)

    @cached_property
    def head_fqdn(self) -> str:
        name = services.get_head_service_name(self.cluster)
        return names.head_fqdn(name, self.cluster.metadata.namespace, self.config.cluster_domain)

    @property
    def gcs_address(self) -> str:
        """Host and port at which other pods reach the GCS."""
        return f"{self.head_fqdn}:{traits.gcs_port(self.cluster)}"


def build_pod_labels(node: RayNode) -> dict[str, str]:
    """Return the labels of a node's pod.

    In rising precedence they come from the operator's configuration, raybus, the template and the
    group. Users cannot change the `FIXED` labels. `build_replica_labels` adds the position in the
    group.
    """
    group, name, node_type = (
        node.group,
        node.cluster.metadata.name,
        labels.HEAD if node.is_head else labels.WORKER,
    )
    users_own = pod_json.mapping(pod_json.body(group.template, "metadata"), "labels") | (
        group.labels or {}
    )
    all_labels = {
        labels.IS_RAY_NODE: "yes",
        labels.CLUSTER: name,
        labels.NODE_TYPE: node_type,
        labels.GROUP: group.group_name if isinstance(group, WorkerGroupSpec) else labels.HEAD_GROUP,
        labels.IDENTIFIER: names.checked_label(f"{name}-{node_type}"),
        **labels.BY_OPERATOR,
        **{key: value for key, value in users_own.items() if key not in FIXED},
    }
    all_labels = node.config.default_pod_labels | all_labels
    # service-reconciler sets the head's label when its proxy is healthy.
    if traits.is_for_a_service(node.cluster):
        all_labels[labels.SERVE] = "false" if node.is_head else "true"
    return all_labels


def build_replica_labels(node: RayNode, replica: ReplicaIndex) -> dict[str, str]:
    """Return the labels with a worker's position in its group; they take precedence over others."""
    if FeatureGate.MULTI_HOST_INDEXING not in node.config.gates:
        return {}
    replica_labels = {labels.REPLICA_INDEX: str(replica.index)}
    if isinstance(node.group, WorkerGroupSpec) and node.group.num_of_hosts > 1:
        replica_labels |= {
            labels.REPLICA_NAME: replica.replica_name,
            labels.HOST_INDEX: str(replica.host),
        }
    return replica_labels


class Namer:
    """Draws the pod names of one plan, each name once.

    A name depends on the pod's position in its group and on no other observed state. If this or
    another replica repeats a creation, the API server therefore answers AlreadyExists, and no
    second pod is created.

    A name is not reused while a component may remember it. The names of existing pods, of deleted
    pods in the cache, and of pods in the autoscaler's `workersToDelete` are skipped. The cache
    forgets a deleted pod after an hour. Names also depend on the hour, so a forgotten name is not
    drawn again (spec raycluster §2.7, §22). For a cluster without a status, the hour of its
    creation is used: a replica that takes over from a crashed one creates the first pods without a
    list of existing pods. It must therefore draw the same names.
    """

    def __init__(self, observed: Observed) -> None:
        cluster = observed.cluster
        named = (
            group.scale_strategy.workers_to_delete or () for group in traits.worker_groups(cluster)
        )
        self._taken = {pod.metadata.name for pod in observed.pods}.union(
            observed.unavailable_names, *named
        )
        created_at = cluster.metadata.creation_timestamp
        moment = (
            created_at
            if created_at is not None and cluster.status.last_update_time is None
            else observed.now
        )
        self._seed = (cluster.metadata.uid, str(int(moment.timestamp()) // NAME_EPOCH_SECONDS))

    def draw(
        self, prefix: str, group: str, index: str = "", *, hosts: int = 1
    ) -> tuple[list[str], str]:
        """Return the names of a replica's pods, and the name of the replica.

        The name of a pod is `prefix` and a suffix; the name of the replica is the group and a
        suffix. The suffix depends on `index`, the index of the replica. If the name of a pod is
        taken, new suffixes are drawn for all hosts of the replica.
        """
        attempts = (
            (
                attempt,
                [
                    prefix + self._draw_suffix(group, index, str(host), attempt)
                    for host in range(hosts)
                ],
            )
            for attempt in map(str, count())
        )
        attempt, drawn = next(
            candidate for candidate in attempts if self._taken.isdisjoint(candidate[1])
        )
        self._taken.update(drawn)
        return drawn, f"{group[:57]}-{self._draw_suffix(group, 'replica', index, attempt)}"

    def _draw_suffix(self, *parts: str) -> str:
        """Return five characters that depend only on the cluster's uid, the hour and the parts."""
        digest = hashlib.sha256(msgspec.json.encode((*self._seed, *parts))).digest()
        return names.suffix(int.from_bytes(digest[:8], "big"))
