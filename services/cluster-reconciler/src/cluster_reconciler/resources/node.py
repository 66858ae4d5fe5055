"""One Ray node to be, the head or a worker, as the parts of its pod must know it: its name, its addresses and its labels.

Head and worker pods are put together from the same parts in the same order; this module holds their differences.
Behaviour: spec raycluster §2.1 (with its precedence), §11.3; acceptance cases 51, 67, 72, 101-103.
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
from common.feature_gates import Gate
from common.ray import cluster_traits as traits

FIXED: Final = frozenset({labels.NODE_TYPE, labels.GROUP, labels.CLUSTER})
"""What a user may not change: by these we find our pods."""
WAIT_GCS_READY: Final = "wait-gcs-ready"
"""The init container of a worker."""
SEASON_SECONDS: Final = 3600
"""No longer than tombstones stay in the state stream."""


class ReplicaIndex(msgspec.Struct, frozen=True):
    """A worker's place in its group (spec raycluster §9.7): its replica's index, the host's, and the replica's name, a label where it has several hosts."""

    index: int
    host: int = 0
    replica_name: str = ""


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
    group, name, node_type = (
        node.group,
        node.cluster.metadata.name,
        labels.HEAD if node.is_head else labels.WORKER,
    )
    users_own = pod_json.mapping(pod_json.body(group.template, "metadata"), "labels") | (
        group.labels or {}
    )
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
            found[labels.REPLICA_NAME] = replica.replica_name
            found[labels.HOST_INDEX] = str(replica.host)
    found = node.config.default_pod_labels | found
    if traits.is_for_a_service(node.cluster):
        found[labels.SERVE] = "false" if node.is_head else "true"  # the head is let in by hand
    return found


class Namer:
    """Draws the names of one plan, each once.

    A name is computed from a pod's place and not from what else was observed, so that a create that is repeated, by us or by
    another owner of the key with other observations, meets AlreadyExists instead of making a second pod.

    A name is not used again while a component may remember it: names of pods that exist, that the state has tombstones of, and
    that the autoscaler has in `workersToDelete` are skipped. The state remembers a deletion for an hour, so the hour is part
    of the seed (design rule 5; spec raycluster §2.7, §22). Of a cluster that has no status yet it is the hour in which the cluster
    was made: its first pods are made without asking which there are, so an owner before us must have drawn the same names.
    """

    def __init__(self, observed: Observed) -> None:
        cluster = observed.cluster
        named = (
            group.scale_strategy.workers_to_delete or () for group in traits.worker_groups(cluster)
        )
        self._taken = {pod.metadata.name for pod in observed.pods}.union(observed.taken, *named)
        made = cluster.metadata.creation_timestamp
        moment = (
            made if made is not None and cluster.status.last_update_time is None else observed.now
        )
        self._seed = (cluster.metadata.uid, str(int(moment.timestamp()) // SEASON_SECONDS))

    def draw(
        self, prefix: str, group: str, place: str = "", *, hosts: int = 1
    ) -> tuple[list[str], str]:
        """Return the names of a replica's pods, and that of the replica: `prefix`, or the group, and suffixes that depend on its place.

        It is the first attempt in which the names of all hosts are free.
        """
        attempts = (
            (
                attempt,
                [prefix + self._suffix(group, place, str(host), attempt) for host in range(hosts)],
            )
            for attempt in map(str, count())
        )
        attempt, drawn = next(each for each in attempts if self._taken.isdisjoint(each[1]))
        self._taken.update(drawn)
        return drawn, f"{group[:57]}-{self._suffix(group, 'replica', place, attempt)}"

    def _suffix(self, *parts: str) -> str:
        """Return five characters that depend on the cluster, its season and the parts, and on nothing else."""
        digest = hashlib.sha256(msgspec.json.encode((*self._seed, *parts))).digest()
        return names.suffix(int.from_bytes(digest[:8], "big"))
