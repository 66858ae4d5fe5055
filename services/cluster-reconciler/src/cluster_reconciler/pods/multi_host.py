"""Which replicas of a multi-host group are created, and which go; a replica is several pods that live and die together.

Order: wait for what we deleted, drop one incomplete replica, drop replicas that the autoscaler names, drop replicas with a
pod that cannot recover (and replace them at once), then meet the target (spec raycluster §9.7; acceptance cases 67-71).
Pods without a replica name are ignored. Surplus replicas go as the surplus pods of other groups do.
"""

from collections.abc import Mapping
from itertools import islice

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.pods import deletion, workers
from cluster_reconciler.pods.workers import GroupDecision
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.runtime.actions import Delete

Replicas = dict[str, list[Pod]]


def decide(observed: Observed, group: WorkerGroupSpec, *, may_shrink: bool, room: int) -> GroupDecision:
    """Return what is done about one group now: whole replicas, one at least and otherwise at most `room` pods."""
    cluster, pods = observed.cluster, observed.group(group.group_name)
    replicas = _replicas(pods)
    at_once = max(1, room // workers.hosts(group))
    if observed.is_waiting_for(pods):  # nothing is created before the deleted pods are gone
        surplus = _surplus(replicas, group, may_shrink=may_shrink)
        return GroupDecision(
            note="pods that were deleted are still going",
            deletions=_drop(cluster, replicas, surplus, group, at_once),
            unfinished="pods are going",
            is_partial=len(surplus) > at_once,
        )
    if group.suspend:
        return workers.suspended(pods)
    incomplete = next((name for name, members in replicas.items() if len(members) < workers.hosts(group)), None)
    if incomplete is not None:
        reason = f"cleaned up incomplete replica group {incomplete}, requeueing"
        gone = _drop(cluster, replicas, {incomplete: "cleanup of incomplete multi-host group"}, group, at_once)
        return GroupDecision(note=reason, deletions=gone, unfinished=reason)
    to_delete = set(group.scale_strategy.workers_to_delete or ())
    named = {
        replica: "autoscaler scale-down request"
        for replica, members in replicas.items()
        if any(pod.metadata.name in to_delete for pod in members) and not all(map(is_terminating, members))
    }
    if named:
        gone = _drop(cluster, replicas, named, group, at_once)
        reason = f"deleted {len(gone)} worker Pods based on ScaleStrategy, requeueing"
        return GroupDecision(note=reason, deletions=gone, unfinished=reason, is_partial=len(named) > at_once)
    reasons = {name: [*filter(None, map(deletion.reason, members))] for name, members in replicas.items()}
    valid = {name: members for name, members in replicas.items() if not reasons[name]}
    gone = {name: found[0] for name, found in reasons.items() if found}
    gone |= _surplus(valid, group, may_shrink=may_shrink)
    missing = max(0, workers.replicas(group) - len(valid))
    created = min(missing, max(0, at_once - len(gone)))
    return GroupDecision(
        note=f"target {workers.replicas(group)} replicas, have {len(valid)}",
        deletions=_drop(cluster, replicas, gone, group, at_once),
        creations=workers.free_indexes((members[0] for members in valid.values()), created),
        is_partial=len(gone) + missing > at_once,
    )


def _surplus(replicas: Replicas, group: WorkerGroupSpec, *, may_shrink: bool) -> dict[str, str]:
    """Return the replicas above the target that are not going yet, in the order in which they go, with the reason."""
    excess = len(replicas) - workers.replicas(group)
    if excess <= 0 or not may_shrink:
        return {}
    ranked = sorted(replicas, key=lambda name: workers.removal_rank(replicas[name]))
    return {name: "scaling down" for name in ranked[:excess] if not all(map(is_terminating, replicas[name]))}


def _replicas(pods: tuple[Pod, ...]) -> Replicas:
    """Return the pods by the name of their replica, in the order of names."""
    found: Replicas = {}
    for pod in pods:
        name = pod.metadata.labels.get(labels.REPLICA_NAME)
        if name is not None:
            found.setdefault(name, []).append(pod)
    return dict(sorted(found.items()))


def _drop(
    cluster: RayCluster, replicas: Replicas, reasons: Mapping[str, str], group: WorkerGroupSpec, at_once: int
) -> tuple[Delete, ...]:
    """Return the deletion of the first replicas that go; `reasons` is by replica."""
    of_group = f" for group {group.group_name}"
    return tuple(
        deletion.of_worker(
            cluster,
            pod,
            what="worker Pod",
            more=f"{of_group}: {reason}",
            failed_more=f"{of_group}; {deletion.state(pod)}",
        )
        for name, reason in islice(reasons.items(), at_once)
        for pod in replicas[name]
        if not is_terminating(pod)
    )
