"""Which replicas of a multi-host group are created, and which go; a replica is several pods that live and die together.

Order: wait for what we deleted, drop one incomplete replica, drop replicas that the autoscaler names, drop replicas with a
pod that cannot recover (and replace them at once), then meet the target (spec raycluster §9.7; acceptance cases 67-71).
Pods without a replica name are not looked at. Surplus replicas go in the order of their names,
those that are going already first.
"""

from collections.abc import Iterable

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.pods import deletion, groups, workers
from cluster_reconciler.pods.groups import Deletion, GroupDecision, Place
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import WorkerGroupSpec

Replicas = dict[str, list[Pod]]


def decide(observed: Observed, group: WorkerGroupSpec, *, may_shrink: bool) -> GroupDecision:
    """Return what is done about one group now."""
    pods = observed.group(group.group_name)
    if observed.is_waiting_for(pods):
        return GroupDecision(note="pods that were deleted are still going", unfinished="pods are going")
    if group.suspend:
        return workers.suspended(pods)
    replicas = _replicas(pods)
    incomplete = [name for name, members in replicas.items() if len(members) < groups.hosts(group)]
    if incomplete:
        reason = f"cleaned up incomplete replica group {incomplete[0]}, requeueing"
        gone = _drop(replicas[incomplete[0]], group, "cleanup of incomplete multi-host group")
        return GroupDecision(note=reason, deletions=gone, unfinished=reason)
    named = _named(replicas, group)
    if named:
        gone = _drop((pod for name in named for pod in replicas[name]), group, "autoscaler scale-down request")
        reason = f"deleted {len(gone)} worker Pods based on ScaleStrategy, requeueing"
        return GroupDecision(note=reason, deletions=gone, unfinished=reason)
    return _meet_target(replicas, group, may_shrink=may_shrink)


def _meet_target(replicas: Replicas, group: WorkerGroupSpec, *, may_shrink: bool) -> GroupDecision:
    gone: list[Deletion] = []
    valid = dict(replicas)
    for name, members in replicas.items():
        reasons = [deletion.reason(pod) or "" for pod in members if deletion.is_due(pod)]
        if reasons:
            gone += _drop(members, group, reasons[0])
            del valid[name]
    missing = groups.target(group) // groups.hosts(group) - len(valid)
    if missing < 0 and may_shrink:
        surplus = sorted(valid, key=lambda name: (not all(map(is_terminating, valid[name])), name))[:-missing]
        gone += _drop((pod for name in surplus for pod in valid[name]), group, "scaling down")
    used = {index for members in valid.values() if (index := workers.replica_index(members[0])) is not None}
    return GroupDecision(
        note=f"target {groups.target(group) // groups.hosts(group)} replicas, have {len(valid)}",
        deletions=tuple(gone),
        creations=tuple(
            Place(index, host, is_part=True)
            for index in workers.free_indexes(used, missing)
            for host in range(groups.hosts(group))
        ),
    )


def _replicas(pods: Iterable[Pod]) -> Replicas:
    found: Replicas = {}
    for pod in pods:
        name = pod.metadata.labels.get(labels.REPLICA_NAME)
        if name is not None:
            found.setdefault(name, []).append(pod)
    return dict(sorted(found.items()))


def _named(replicas: Replicas, group: WorkerGroupSpec) -> list[str]:
    names = set(group.scale_strategy.workers_to_delete or ())
    return [
        replica
        for replica, members in replicas.items()
        if any(pod.metadata.name in names for pod in members) and not all(map(is_terminating, members))
    ]


def _drop(pods: Iterable[Pod], group: WorkerGroupSpec, reason: str) -> tuple[Deletion, ...]:
    return tuple(
        Deletion(
            pod=pod,
            what="worker Pod",
            more=f" for group {group.group_name}: {reason}",
            failed_more=f" for group {group.group_name}; {deletion.state(pod)}",
        )
        for pod in pods
        if not is_terminating(pod)
    )
