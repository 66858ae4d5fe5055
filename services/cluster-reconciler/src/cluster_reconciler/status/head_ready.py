"""The condition HeadPodReady (spec raycluster §13.4; acceptance cases 111, 113)."""

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionReason
from cluster_reconciler.status.conditions import Fact
from common.api.core import Pod, PodCondition

_CONTAINERS_NOT_READY = "ContainersNotReady"


def compute(observed: Observed) -> Fact:
    """Return what the condition says; the caller has made sure that there is at most one head."""
    if not observed.heads:
        return Fact("False", ConditionReason.HEAD_POD_NOT_FOUND, "Head Pod not found")
    head = observed.heads[0]
    ready = head.condition("Ready")
    if ready is None:
        return Fact("False", ConditionReason.UNKNOWN)
    if ready.reason == _CONTAINERS_NOT_READY:
        return _blame_container(head, ready)
    fallback = ConditionReason.HEAD_POD_RUNNING_AND_READY if ready.status == "True" else ConditionReason.UNKNOWN
    return Fact(ready.status, ready.reason or fallback, ready.message)


def _blame_container(head: Pod, ready: PodCondition) -> Fact:
    """Name the first container that waits or has ended: its reason tells more than the pod's."""
    for container in head.status.container_statuses:
        trouble = container.state.waiting or container.state.terminated
        if trouble is not None:
            told = f"{container.name}: {trouble.message}"
            message = f"{ready.message}; {told}" if ready.message else told
            return Fact(ready.status, trouble.reason or _CONTAINERS_NOT_READY, message)
    return Fact(ready.status, ready.reason, ready.message)
