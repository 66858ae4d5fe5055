"""How many pods a worker group should have; which are created, and which go, when its replicas are single pods.

Order: wait for what we deleted, drop what cannot recover, drop what the autoscaler names, then meet the target
(spec raycluster §9.6; acceptance cases 51-66). Of surplus pods those go first that
are being deleted, then those that are not ready, then the newest, and by name where all that is equal.

Differences from KubeRay, none visible in the end state: a group with unhealthy pods does not hold up the groups after it,
and `workersToDelete` reaches only workers of this cluster.
"""

from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.pods import deletion
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.runtime.actions import Delete

UNBOUNDED: Final = 2**31 - 1


class GroupDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about one group, and why."""

    note: str
    deletions: tuple[Delete, ...] = ()
    creations: tuple[int, ...] = ()
    """The indexes of the replicas; all 0 when they are not counted (the gate RayMultiHostIndexing is off)."""
    deletes_all: bool = False
    unfinished: str = ""
    is_partial: bool = False
    """Whether there is more to create or delete than this batch."""


def hosts(group: WorkerGroupSpec) -> int:
    """Return the pods per replica; a negative number counts as none."""
    return max(0, group.num_of_hosts)


def replicas(group: WorkerGroupSpec) -> int:
    """Return how many replicas a group should have, within their limits; none when suspended."""
    if group.suspend:
        return 0
    least, most = group.min_replicas or 0, UNBOUNDED if group.max_replicas is None else group.max_replicas
    return least if group.replicas is None or group.replicas < least else min(group.replicas, most)


def target(group: WorkerGroupSpec) -> int:
    """Return how many pods a group should have."""
    return replicas(group) * hosts(group)


def decide(
    observed: Observed, group: WorkerGroupSpec, *, may_shrink: bool, has_indexes: bool, room: int
) -> GroupDecision:
    """Return what is done about one group now: at most `room` pods are created and deleted; surplus ones go if it `may_shrink`.

    While pods that were deleted are still going, only the rest of what is superfluous follows.
    """
    pods = observed.group(group.group_name)
    is_waiting = observed.is_waiting_for(pods)
    if group.suspend and not is_waiting:
        return suspended(pods)
    if not is_waiting and (unhealthy := [pod for pod in pods if deletion.reason(pod)]):
        return _drop_unhealthy(observed.cluster, unhealthy, room=room)
    named = observed.named(frozenset(group.scale_strategy.workers_to_delete or ()))
    uids = {pod.metadata.uid for pod in named}
    running = [pod for pod in pods if pod.metadata.uid not in uids]
    gone = [(pod, "pod") for pod in named if not is_terminating(pod)]
    missing = target(group) - len(running)
    if missing < 0 and may_shrink:
        surplus = sorted(running, key=lambda pod: removal_rank([pod]))[:-missing]
        gone += [(pod, "Pod") for pod in surplus if not is_terminating(pod)]
    deletions = tuple(deletion.of_worker(observed.cluster, pod, what=what) for pod, what in gone[:room])
    if is_waiting:
        return GroupDecision(
            note="pods that were deleted are still going",
            deletions=deletions,
            unfinished="pods are going",
            is_partial=len(gone) > room,
        )
    created = max(0, min(missing, room - len(gone)))
    return GroupDecision(
        note=f"target {target(group)}, have {len(running)}, named to go {len(named)}",
        deletions=deletions,
        creations=free_indexes(running, created) if has_indexes else (0,) * created,
        is_partial=len(gone) + max(0, missing) > room,
    )


def suspended(pods: tuple[Pod, ...]) -> GroupDecision:
    """Return what is done about a suspended group: its pods go."""
    return GroupDecision(note="the group is suspended", deletes_all=not all(map(is_terminating, pods)))


def _drop_unhealthy(cluster: RayCluster, pods: list[Pod], *, room: int) -> GroupDecision:
    """Delete first; replacements are created once the old pods are gone."""
    reason = f"delete {len(pods)} unhealthy worker Pods"
    states = ((pod, f"; {deletion.state(pod)}") for pod in pods[:room])
    return GroupDecision(
        note=reason,
        deletions=tuple(
            deletion.of_worker(cluster, pod, what="worker Pod", more=state, failed_more=state) for pod, state in states
        ),
        unfinished=reason,
        is_partial=len(pods) > room,
    )


def removal_rank(pods: Sequence[Pod]) -> tuple[bool, bool, float]:
    """Return the rank in which a surplus replica goes: first what is going already, then what is not ready, then the newest."""
    created = (pod.metadata.creation_timestamp for pod in pods)
    return (
        not all(map(is_terminating, pods)),
        all(pod.is_running_and_ready for pod in pods),
        -max((moment.timestamp() for moment in created if moment is not None), default=0.0),
    )


def free_indexes(pods: Iterable[Pod], number: int) -> tuple[int, ...]:
    """Return the smallest indexes that no pod has; a label that is no number is passed over."""
    texts = (pod.metadata.labels.get(labels.REPLICA_INDEX, "") for pod in pods)
    used = {int(text) for text in texts if text.isascii() and text.isdecimal()}
    return tuple(islice((index for index in count() if index not in used), number))
