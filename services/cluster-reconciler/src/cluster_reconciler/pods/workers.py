"""Decide which worker pods of a group to create and delete.

Order for replicas of one pod: wait for pods that this process deleted, delete pods that cannot
recover, delete pods that the autoscaler names, then meet the target (spec raycluster §9.6;
acceptance cases 51-66). Surplus pods are deleted in this order: pods that are being deleted, pods
that are not ready, newest pods, then by name.

The pods of a multi-host replica are created and deleted together. Order: wait for deleted pods,
delete one incomplete replica, delete (and replace at once) replicas with a pod that cannot recover
and replicas that the autoscaler names, then meet the target (§9.7; cases 67-71). Pods without a
replica name are ignored.

Two differences from KubeRay, neither visible in the end state: a group with unhealthy pods does not
delay the groups after it, and `workersToDelete` affects only workers of this cluster.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import count, islice

import msgspec

from cluster_reconciler import events
from cluster_reconciler.observed import (
    Observed,
    describe_pod,
    find_irrecoverable_reason,
    is_terminating,
)
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import FeatureGate
from common.kube.resources import POD
from common.ray import cluster_traits as traits
from common.runtime.actions import Delete

Pods = tuple[Pod, ...]


class GroupDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one worker group to delete and to create, and the reason."""

    note: str
    deletions: tuple[Delete, ...] = ()
    creations: tuple[int, ...] = ()
    """The indexes of the replicas to create; all 0 if the gate RayMultiHostIndexing is off."""
    hosts: int = 1
    """Number of pods of each replica to create."""
    deletes_all: bool = False
    unfinished: str = ""
    is_partial: bool = False
    """Whether more pods remain to be created or deleted than fit into this batch."""


def decide(
    observed: Observed, group: WorkerGroupSpec, *, max_changes: int, gone: Set[str] = frozenset()
) -> GroupDecision:
    """Return the pods of a group to create and to delete, together at most `max_changes` pods.

    With multi-host indexing, the decision covers at least one whole replica, even if the replica
    has more than `max_changes` hosts. `gone` are names of pods that the plan deletes in earlier
    groups, because `workersToDelete` may name pods of another group.

    While a pod that this process deleted still exists, no pod is created and no unhealthy pod is
    deleted, but pods above the target are deleted. With an autoscaler, pods above the target stay
    unless the configuration allows their deletion, because the autoscaler names the pods to delete.
    """
    has_indexes = FeatureGate.MULTI_HOST_INDEXING in observed.config.gates
    pods = observed.by_group.get(group.group_name, ())
    if gone:
        pods = tuple(pod for pod in pods if pod.metadata.name not in gone)
    is_waiting = observed.is_waiting_for(pods)
    if group.suspend and not is_waiting:
        return GroupDecision(
            note="the group is suspended", deletes_all=not all(map(is_terminating, pods))
        )
    decide_replicas = (
        _decide_multi_host if group.num_of_hosts > 1 and has_indexes else _decide_single_host
    )
    decision = decide_replicas(
        observed, group, pods, is_waiting=is_waiting, max_changes=max_changes
    )
    if not has_indexes:
        decision = msgspec.structs.replace(decision, creations=(0,) * len(decision.creations))
    if not is_waiting:
        return decision
    return msgspec.structs.replace(
        decision, note="pods that were deleted are still going", unfinished="pods are going"
    )


def _decide_single_host(
    observed: Observed, group: WorkerGroupSpec, pods: Pods, *, is_waiting: bool, max_changes: int
) -> GroupDecision:
    """Decide on a group in which each replica is a single pod; `pods` are its present pods.

    Pods that cannot recover are deleted. A later reconcile replaces them when they are gone. While
    a deleted pod still exists (`is_waiting`), no pod is created.
    """
    cluster, to_delete = observed.cluster, set(group.scale_strategy.workers_to_delete or ())
    if not is_waiting and (
        unhealthy := [pod for pod in pods if find_irrecoverable_reason(pod, cluster)]
    ):
        reason = f"delete {len(unhealthy)} unhealthy worker Pods"
        states = ((pod, f"; {describe_pod(pod, cluster)}") for pod in unhealthy[:max_changes])
        dropped = (
            _delete(cluster, pod, description="worker Pod", more=text, failed_more=text)
            for pod, text in states
        )
        is_partial = len(unhealthy) > max_changes
        return GroupDecision(
            note=reason, deletions=tuple(dropped), unfinished=reason, is_partial=is_partial
        )
    named = [observed.by_name[name] for name in sorted(to_delete & observed.by_name.keys())]
    uids = {pod.metadata.uid for pod in named}
    running = [pod for pod in pods if pod.metadata.uid not in uids]
    gone = [(pod, "pod") for pod in named if not is_terminating(pod)]
    excess = len(running) - traits.target(group)
    if excess > 0 and observed.may_shrink:
        surplus = sorted(running, key=lambda pod: removal_rank([pod]))[:excess]
        gone += [(pod, "Pod") for pod in surplus if not is_terminating(pod)]
    missing = 0 if is_waiting else max(0, -excess)
    created = max(0, min(missing, max_changes - len(gone)))
    return GroupDecision(
        note=f"target {traits.target(group)}, have {len(running)}, named to go {len(named)}",
        deletions=tuple(
            _delete(cluster, pod, description=what) for pod, what in gone[:max_changes]
        ),
        creations=free_indexes(running, created),
        is_partial=len(gone) + missing > max_changes,
    )


def _decide_multi_host(
    observed: Observed, group: WorkerGroupSpec, pods: Pods, *, is_waiting: bool, max_changes: int
) -> GroupDecision:
    """Decide on multi-host replicas, which are created and deleted as a whole.

    `pods` are the present pods of the group. While a deleted pod still exists (`is_waiting`), no
    pod is created.
    """
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if (replica := pod.metadata.labels.get(labels.REPLICA_NAME)) is not None:
            members.setdefault(replica, []).append(pod)
    members, at_once = dict(sorted(members.items())), max(1, max_changes // traits.hosts(group))

    def drop(reasons: Mapping[str, str]) -> tuple[Delete, ...]:
        """Return the actions that delete the replicas in `reasons`, up to the limit of this batch.

        `reasons` maps the name of each replica to the reason for its deletion.
        """
        shown, group_text = islice(reasons.items(), at_once), f" for group {group.group_name}"
        gone = (
            (pod, reason)
            for name, reason in shown
            for pod in members[name]
            if not is_terminating(pod)
        )
        return tuple(
            _delete(
                observed.cluster,
                pod,
                description="worker Pod",
                more=f"{group_text}: {cause}",
                failed_more=f"{group_text}; {describe_pod(pod, observed.cluster)}",
            )
            for pod, cause in gone
        )

    going = {
        name for name, replica_pods in members.items() if all(map(is_terminating, replica_pods))
    }
    unhealthy: dict[str, str] = {}
    if not is_waiting:
        if incomplete := next(
            (
                name
                for name, replica_pods in members.items()
                if len(replica_pods) < traits.hosts(group)
            ),
            None,
        ):
            reason = f"cleaned up incomplete replica group {incomplete}, requeueing"
            deletions = drop({incomplete: "cleanup of incomplete multi-host group"})
            return GroupDecision(note=reason, deletions=deletions, unfinished=reason)
        reasons = {
            name: [
                reason
                for pod in replica_pods
                if (reason := find_irrecoverable_reason(pod, observed.cluster))
            ]
            for name, replica_pods in members.items()
        }
        unhealthy = {name: pod_reasons[0] for name, pod_reasons in reasons.items() if pod_reasons}
        to_delete = set(group.scale_strategy.workers_to_delete or ())
        named = [
            name
            for name, replica_pods in members.items()
            if not to_delete.isdisjoint(pod.metadata.name for pod in replica_pods)
        ]
        if named_replicas := [name for name in named if name not in going]:
            gone = unhealthy | {
                name: "autoscaler scale-down request"
                for name in named_replicas
                if name not in unhealthy
            }
            deletions = drop(gone)
            reason = f"deleted {len(deletions)} worker Pods based on ScaleStrategy, requeueing"
            return GroupDecision(
                note=reason, deletions=deletions, unfinished=reason, is_partial=len(gone) > at_once
            )
    valid, gone = [name for name in members if name not in unhealthy], unhealthy
    excess = len(valid) - traits.replicas(group)
    if excess > 0 and observed.may_shrink:
        surplus = sorted(valid, key=lambda name: removal_rank(members[name]))[:excess]
        gone |= {name: "scaling down" for name in surplus if name not in going}
    missing = 0 if is_waiting else max(0, -excess)
    created = min(missing, max(0, at_once - len(gone)))
    return GroupDecision(
        note=f"target {traits.replicas(group)} replicas, have {len(valid)}",
        deletions=drop(gone),
        creations=free_indexes((members[name][0] for name in valid), created),
        hosts=traits.hosts(group),
        is_partial=len(gone) + missing > at_once,
    )


def removal_rank(pods: Sequence[Pod]) -> tuple[bool, bool, float]:
    """Return the sort key of a surplus replica; replicas with a smaller key are deleted first.

    First come replicas that are being deleted, then replicas that are not ready, then the newest.
    """
    created = (pod.metadata.creation_timestamp for pod in pods)
    return (
        not all(map(is_terminating, pods)),
        all(pod.is_running_and_ready for pod in pods),
        -max((moment.timestamp() for moment in created if moment is not None), default=0.0),
    )


def free_indexes(pods: Iterable[Pod], number: int) -> tuple[int, ...]:
    """Return the `number` smallest replica indexes that no pod has.

    Index labels that are no number are ignored.
    """
    texts = (pod.metadata.labels.get(labels.REPLICA_INDEX, "") for pod in pods)
    used = {int(text) for text in texts if text.isascii() and text.isdecimal()}
    return tuple(islice((index for index in count() if index not in used), number))


def _delete(
    cluster: RayCluster, pod: Pod, *, description: str, more: str = "", failed_more: str = ""
) -> Delete:
    """Return the action that deletes a worker pod.

    `more` and `failed_more` follow the pod's name in the Events about success and failure.
    """
    meta = pod.metadata
    report = events.DELETED_WORKER.about(
        cluster, meta.name, what=description, more=more, failed_more=failed_more
    )
    return Delete(resource=POD, name=meta.name, uid=meta.uid, events=report)
