"""Which replicas of a multi-host group are created, and which go; a replica is several pods that live and die together.

Order: wait for what we deleted, drop one incomplete replica, drop replicas that the autoscaler names, drop replicas with a
pod that cannot recover (and replace them at once), then meet the target (spec raycluster §9.7; acceptance cases 67-71).
Pods without a replica name are ignored. Surplus replicas go as the surplus pods
of other groups do.
"""

from collections.abc import Iterable

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.pods import deletion, groups, workers
from cluster_reconciler.pods.groups import Deletion, GroupDecision, Place
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import WorkerGroupSpec

Replicas = dict[str, list[Pod]]


def decide(observed: Observed, group: WorkerGroupSpec, *, may_shrink: bool, room: int) -> GroupDecision:
    """Return what is done about one group now: whole replicas, one at least and otherwise at most `room` pods."""
    pods = observed.group(group.group_name)
    replicas = _replicas(pods)
    at_once = max(1, room // groups.hosts(group))
    if observed.is_waiting_for(pods):
        return _while_waiting(replicas, group, may_shrink=may_shrink, at_once=at_once)
    if group.suspend:
        return workers.suspended(pods)
    incomplete = [name for name, members in replicas.items() if len(members) < groups.hosts(group)]
    if incomplete:
        reason = f"cleaned up incomplete replica group {incomplete[0]}, requeueing"
        gone = _drop(replicas[incomplete[0]], group, "cleanup of incomplete multi-host group")
        return GroupDecision(note=reason, deletions=gone, unfinished=reason)
    named = _named(replicas, group)
    if named:
        gone = _drop(
            (pod for name in named[:at_once] for pod in replicas[name]), group, "autoscaler scale-down request"
        )
        reason = f"deleted {len(gone)} worker Pods based on ScaleStrategy, requeueing"
        return GroupDecision(note=reason, deletions=gone, unfinished=reason, is_partial=len(named) > at_once)
    return _meet_target(replicas, group, may_shrink=may_shrink, at_once=at_once)


def _while_waiting(replicas: Replicas, group: WorkerGroupSpec, *, may_shrink: bool, at_once: int) -> GroupDecision:
    """Delete the rest of what is superfluous; nothing is created before the deleted pods are gone."""
    surplus = [name for name in _surplus(replicas, group, may_shrink=may_shrink) if not _is_terminating(replicas[name])]
    return GroupDecision(
        note="pods that were deleted are still going",
        deletions=_drop((pod for name in surplus[:at_once] for pod in replicas[name]), group, "scaling down"),
        unfinished="pods are going",
        is_partial=len(surplus) > at_once,
    )


def _meet_target(replicas: Replicas, group: WorkerGroupSpec, *, may_shrink: bool, at_once: int) -> GroupDecision:
    gone = {
        name: reasons[0]
        for name, members in replicas.items()
        if (reasons := [deletion.reason(pod) or "" for pod in members if deletion.is_due(pod)])
    }
    valid = {name: members for name, members in replicas.items() if name not in gone}
    missing = max(0, _target(group) - len(valid))
    surplus = _surplus(valid, group, may_shrink=may_shrink)
    gone |= {name: "scaling down" for name in surplus if not _is_terminating(valid[name])}
    used = {index for members in valid.values() if (index := workers.replica_index(members[0])) is not None}
    batch = list(gone.items())[:at_once]
    room = min(missing, max(0, at_once - len(gone)))
    return GroupDecision(
        note=f"target {_target(group)} replicas, have {len(valid)}",
        deletions=tuple(each for name, reason in batch for each in _drop(replicas[name], group, reason)),
        creations=tuple(
            Place(index, host, is_part=True)
            for index in workers.free_indexes(used, room)
            for host in range(groups.hosts(group))
        ),
        is_partial=len(gone) + missing > at_once,
    )


def _target(group: WorkerGroupSpec) -> int:
    """Return how many replicas a group should have."""
    return groups.target(group) // groups.hosts(group)


def _surplus(replicas: Replicas, group: WorkerGroupSpec, *, may_shrink: bool) -> list[str]:
    """Return the replicas above the target, in the order in which they go."""
    excess = len(replicas) - _target(group)
    if excess <= 0 or not may_shrink:
        return []
    return sorted(replicas, key=lambda name: groups.removal_rank(replicas[name]))[:excess]


def _is_terminating(members: Iterable[Pod]) -> bool:
    return all(map(is_terminating, members))


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
        if any(pod.metadata.name in names for pod in members) and not _is_terminating(members)
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
