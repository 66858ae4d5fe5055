"""Which pods of a worker group are created, and which go, when its replicas are single pods.

Order: wait for what we deleted, drop what cannot recover, drop what the autoscaler names, then meet the target
(spec raycluster §9.6; acceptance cases 51-66). Of surplus pods those go first that
are being deleted, then those that are not ready, then the newest, and by name where all that is equal.

Differences from KubeRay, none visible in the end state: a group with unhealthy pods does not hold up the groups after it,
and `workersToDelete` reaches only workers of this cluster.
"""

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.pods import deletion, groups
from cluster_reconciler.pods.groups import Deletion, GroupDecision, Place
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import WorkerGroupSpec


def decide(
    observed: Observed, group: WorkerGroupSpec, *, may_shrink: bool, has_indexes: bool, room: int
) -> GroupDecision:
    """Return what is done about one group now: at most `room` pods are created and deleted.

    While pods that were deleted are still going, only the rest of what is superfluous follows.
    """
    pods = observed.group(group.group_name)
    is_waiting = observed.is_waiting_for(pods)
    if not is_waiting:
        if group.suspend:
            return suspended(pods)
        if unhealthy := [pod for pod in pods if deletion.is_due(pod)]:
            return _drop_unhealthy(unhealthy, room=room)
    named = _named(observed, group)
    gone = {pod.metadata.uid for pod in named}
    running = [pod for pod in pods if pod.metadata.uid not in gone]
    deletions = [Deletion(pod=pod, what="pod") for pod in named if not is_terminating(pod)]
    missing = groups.target(group) - len(running)
    if missing < 0 and may_shrink:
        surplus = sorted(running, key=lambda pod: groups.removal_rank([pod]))[:-missing]
        deletions += [Deletion(pod=pod) for pod in surplus if not is_terminating(pod)]
    if is_waiting:
        return GroupDecision(
            note="pods that were deleted are still going",
            deletions=tuple(deletions[:room]),
            unfinished="pods are going",
            is_partial=len(deletions) > room,
        )
    creations = max(0, missing)
    return GroupDecision(
        note=f"target {groups.target(group)}, have {len(running)}, named to go {len(named)}",
        deletions=tuple(deletions[:room]),
        creations=_places(running, min(creations, max(0, room - len(deletions))), has_indexes=has_indexes),
        is_partial=len(deletions) + creations > room,
    )


def suspended(pods: tuple[Pod, ...]) -> GroupDecision:
    """Return what is done about a suspended group: its pods go."""
    return GroupDecision(note="the group is suspended", deletes_all=not all(is_terminating(pod) for pod in pods))


def _drop_unhealthy(pods: list[Pod], *, room: int) -> GroupDecision:
    """Delete first; replacements are created once the old pods are gone."""
    reason = f"delete {len(pods)} unhealthy worker Pods"
    return GroupDecision(
        note=reason,
        deletions=tuple(
            Deletion(
                pod=pod, what="worker Pod", more=f"; {deletion.state(pod)}", failed_more=f"; {deletion.state(pod)}"
            )
            for pod in pods[:room]
        ),
        unfinished=reason,
        is_partial=len(pods) > room,
    )


def _named(observed: Observed, group: WorkerGroupSpec) -> list[Pod]:
    return observed.named(frozenset(group.scale_strategy.workers_to_delete or ()))


def _places(running: list[Pod], missing: int, *, has_indexes: bool) -> tuple[Place, ...]:
    if not has_indexes:
        return (Place(None),) * missing
    free = free_indexes({index for pod in running if (index := replica_index(pod)) is not None}, missing)
    return tuple(Place(index) for index in free)


def replica_index(pod: Pod) -> int | None:
    """Return the index that a pod's label holds, if it is one."""
    text = pod.metadata.labels.get(labels.REPLICA_INDEX, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def free_indexes(used: set[int], count: int) -> list[int]:
    """Return the smallest indexes that are not used."""
    found: list[int] = []
    index = 0
    while len(found) < count:
        if index not in used:
            found.append(index)
        index += 1
    return found
