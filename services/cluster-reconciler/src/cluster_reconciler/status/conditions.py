"""All conditions of a RayCluster (spec raycluster §13.1, §13.4, §13.5; acceptance cases 73-78, 111-113).

ReplicaFailure and UnsupportedFeatures are True or absent, never False; UnsupportedFeatures is ours, and only clusters that ask for such a
thing have it. RayClusterProvisioned stays True once it was, except through suspension; it depends on the pods that exist, not on how many
should. Suspension: normal (both False) → Suspending → Suspended → normal; never both True. The end of Suspended needs `suspend: false` in
the spec: to remove the field is not enough.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionReason, ConditionType, EventReason, ReplicaFailure
from common import conditions
from common.api.core import Pod, PodCondition
from common.api.meta import Condition
from common.api.ray_cluster import RayClusterStatus
from common.conditions import ConditionUpdate

_CONTAINERS_NOT_READY: Final = "ContainersNotReady"
_NOT_PROVISIONED: Final = ConditionUpdate(
    ConditionType.PROVISIONED, "False", ConditionReason.PODS_PROVISIONING, "RayCluster has been suspended"
)


class Failure(msgspec.Struct, frozen=True):
    """The first failure of a reconcile, one that concerns pods before others, or why there are no pods."""

    reason: str
    problem: str

    @property
    def is_of_name(self) -> bool:
        """Return whether the name breaks a rule; then nothing else of the cluster is read, and only this condition changes."""
        return self.reason == ReplicaFailure.INVALID_METADATA


def replica_failure(failure: Failure) -> ConditionUpdate:
    """Report that the last attempt to create or delete a child failed, or why none is made."""
    message = f"{failure.reason}\n{failure.problem}"
    return ConditionUpdate(ConditionType.REPLICA_FAILURE, "True", failure.reason, message)


def unsupported(problem: str) -> ConditionUpdate:
    """Report that the spec asks for what we do not do yet."""
    return ConditionUpdate(ConditionType.UNSUPPORTED, "True", EventReason.UNSUPPORTED, problem)


def is_reported_unsupported(status: RayClusterStatus, problem: str) -> bool:
    """Return whether a status reports the same already."""
    found = conditions.find(status.conditions, ConditionType.UNSUPPORTED)
    return found is not None and found.message == problem


def head_ready(observed: Observed) -> ConditionUpdate:
    """Report the head pod; the caller has made sure that there is at most one."""
    if not observed.heads:
        return _head_ready("False", ConditionReason.HEAD_POD_NOT_FOUND, "Head Pod not found")
    head = observed.heads[0]
    ready = head.condition("Ready")
    if ready is None:
        return _head_ready("False", ConditionReason.UNKNOWN)
    if ready.reason == _CONTAINERS_NOT_READY:
        return _blame_container(head, ready)
    fallback = ConditionReason.HEAD_POD_RUNNING_AND_READY if ready.status == "True" else ConditionReason.UNKNOWN
    return _head_ready(ready.status, ready.reason or fallback, ready.message)


def _blame_container(head: Pod, ready: PodCondition) -> ConditionUpdate:
    """Name the first container that waits or has ended: its reason is more precise than the pod's."""
    for container in head.status.container_statuses:
        trouble = container.state.waiting or container.state.terminated
        if trouble is not None:
            text = f"{container.name}: {trouble.message}"
            message = f"{ready.message}; {text}" if ready.message else text
            return _head_ready(ready.status, trouble.reason or _CONTAINERS_NOT_READY, message)
    return _head_ready(ready.status, ready.reason, ready.message)


def _head_ready(status: str, reason: str, message: str = "") -> ConditionUpdate:
    return ConditionUpdate(ConditionType.HEAD_POD_READY, status, reason, message)


def provisioned(observed: Observed) -> ConditionUpdate:
    """Report whether all pods run, as long as they never did and the cluster is not suspended."""
    kind = ConditionType.PROVISIONED
    if all_running(observed.pods):
        return ConditionUpdate(
            kind, "True", ConditionReason.ALL_PODS_READY, "All Ray Pods are ready for the first time"
        )
    text = "RayCluster Pods are being provisioned for first time"
    return ConditionUpdate(kind, "False", ConditionReason.PODS_PROVISIONING, text)


def all_running(pods: Sequence[Pod]) -> bool:
    """Return whether there are pods, each in phase Running and none with a Ready condition that is not True."""
    return bool(pods) and all(_is_running(pod) for pod in pods)


def _is_running(pod: Pod) -> bool:
    ready = pod.condition("Ready")
    return pod.status.phase == "Running" and (ready is None or ready.status == "True")


def suspension(known: Sequence[Condition]) -> ConditionType | None:
    """Return which of the two conditions of suspension is True."""
    kinds = (ConditionType.SUSPENDING, ConditionType.SUSPENDED)
    return next((kind for kind in kinds if conditions.is_true(known, kind)), None)


def suspended(known: Sequence[Condition], observed: Observed, *, now: datetime) -> Sequence[Condition]:
    """Move the state machine of suspension on."""
    suspend = observed.cluster.spec.suspend
    match suspension(known):
        case ConditionType.SUSPENDING:
            if observed.pods:
                return known
            known = conditions.updated(known, _NOT_PROVISIONED, now=now)
            known = _set(known, ConditionType.SUSPENDING, holds=False, now=now)
            return _set(known, ConditionType.SUSPENDED, holds=True, now=now)
        case ConditionType.SUSPENDED:
            if suspend is False:
                return _set(known, ConditionType.SUSPENDED, holds=False, now=now)
            return known
        case _:
            known = _set(known, ConditionType.SUSPENDED, holds=False, now=now)
            return _set(known, ConditionType.SUSPENDING, holds=suspend is True, now=now)


def _set(known: Sequence[Condition], kind: ConditionType, *, holds: bool, now: datetime) -> list[Condition]:
    return conditions.updated(known, ConditionUpdate(kind, "True" if holds else "False", kind), now=now)
