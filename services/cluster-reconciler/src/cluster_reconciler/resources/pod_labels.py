"""The labels of Ray pods: ours, which selectors rely on, under those of the template and the group.

Behaviour: spec raycluster §2.1 (with its precedence), §11.3; acceptance cases 51, 67, 72, 101-103.
"""

from typing import Final

import msgspec

from cluster_reconciler.resources.node import Node
from common import labels, names, pod_json
from common.api.ray_cluster import HeadGroupSpec, WorkerGroupSpec
from common.feature_gates import Gate
from common.ray import cluster_traits as traits

FIXED: Final = frozenset({labels.NODE_TYPE, labels.GROUP, labels.CLUSTER})
"""What a user may not change: by these we find our pods."""


class ReplicaIndex(msgspec.Struct, frozen=True):
    """A worker's place in its group (spec raycluster §9.7): its replica's index and, if that has several hosts, its name and the host's index."""

    index: int
    host: int = 0
    replica_name: str | None = None


def head(node: Node) -> dict[str, str]:
    """Return the labels of a head pod."""
    return _finished(node, _base(node, labels.HEAD, labels.HEAD_GROUP))


def worker(node: Node, group: WorkerGroupSpec, replica: ReplicaIndex) -> dict[str, str]:
    """Return the labels of a worker pod, its place in the group included."""
    found = _base(node, labels.WORKER, group.group_name)
    if node.config.has(Gate.MULTI_HOST_INDEXING):
        found[labels.REPLICA_INDEX] = str(replica.index)
        if group.num_of_hosts > 1:
            found[labels.REPLICA_NAME] = replica.replica_name or ""
            found[labels.HOST_INDEX] = str(replica.host)
    return _finished(node, found)


def _base(node: Node, node_type: str, group_name: str) -> dict[str, str]:
    name = node.cluster.metadata.name
    built_in = {
        labels.IS_RAY_NODE: "yes",
        labels.CLUSTER: name,
        labels.NODE_TYPE: node_type,
        labels.GROUP: group_name,
        labels.IDENTIFIER: names.checked_label(f"{name}-{node_type}"),
        **labels.BY_OPERATOR,
    }
    return built_in | {key: value for key, value in _users_own(node.group).items() if key not in FIXED}


def _users_own(group: HeadGroupSpec | WorkerGroupSpec) -> dict[str, str]:
    return pod_json.mapping(pod_json.body(group.template, "metadata"), "labels") | (group.labels or {})


def _finished(node: Node, found: dict[str, str]) -> dict[str, str]:
    """Add the labels of the operator's configuration, and mark the pods of a service: its head is let in by hand."""
    pod_json.add_missing(found, node.config.default_pod_labels.items())
    if traits.is_for_a_service(node.cluster):
        found[labels.SERVE] = "false" if node.is_head else "true"
    return found
