"""All conditions of a RayCluster (spec raycluster §13.1, §13.4, §13.5; acceptance cases 73-78, 111-113).

ReplicaFailure and UnsupportedFeatures are True or absent, never False; UnsupportedFeatures is ours, and only clusters that ask for such a
thing have it. RayClusterProvisioned stays True once it was, except through suspension; it depends on the pods that exist, not on how many
should. Suspension: normal (both False) → Suspending → Suspended → normal; never both True. The end of Suspended needs `suspend: false` in
the spec: to remove the field is not enough.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionReason, ConditionType
from common import conditions
from common.api.core import Pod
from common.api.meta import Condition
from common.conditions import ConditionUpdate

_CONTAINERS_NOT_READY: Final = "ContainersNotReady"
_NOT_PROVISIONED: Final = ConditionUpdate(
    ConditionType.PROVISIONED, "False", ConditionReason.PODS_PROVISIONING, "RayCluster has been suspended"
)


def head_ready(observed: Observed) -> ConditionUpdate:
    """Report the head pod; the caller has made sure that there is at most one."""
    kind = ConditionType.HEAD_POD_READY
    if not observed.heads:
        return ConditionUpdate(kind, "False", ConditionReason.HEAD_POD_NOT_FOUND, "Head Pod not found")
    head = observed.heads[0]
    ready = head.condition("Ready")
    if ready is None:
        return ConditionUpdate(kind, "False", ConditionReason.UNKNOWN)
    if ready.reason != _CONTAINERS_NOT_READY:
        fallback = ConditionReason.HEAD_POD_RUNNING_AND_READY if ready.status == "True" else ConditionReason.UNKNOWN
        return ConditionUpdate(kind, ready.status, ready.reason or fallback, ready.message)
    for container in head.status.container_statuses:
        # The first container that waits or has ended: its reason is more precise than the pod's.
        if (trouble := container.state.waiting or container.state.terminated) is not None:
            text = f"{container.name}: {trouble.message}"
            message = f"{ready.message}; {text}" if ready.message else text
            return ConditionUpdate(kind, ready.status, trouble.reason or _CONTAINERS_NOT_READY, message)
    return ConditionUpdate(kind, ready.status, ready.reason, ready.message)


def provisioned(observed: Observed) -> ConditionUpdate:
    """Report whether all pods run, as long as they never did and the cluster is not suspended."""
    kind = ConditionType.PROVISIONED
    if all_running(observed.pods):
        text = "All Ray Pods are ready for the first time"
        return ConditionUpdate(kind, "True", ConditionReason.ALL_PODS_READY, text)
    text = "RayCluster Pods are being provisioned for first time"
    return ConditionUpdate(kind, "False", ConditionReason.PODS_PROVISIONING, text)


def all_running(pods: Sequence[Pod]) -> bool:
    """Return whether there are pods, each in phase Running and none with a Ready condition that is not True."""
    return bool(pods) and all(
        pod.status.phase == "Running" and ((ready := pod.condition("Ready")) is None or ready.status == "True")
        for pod in pods
    )


def suspension(known: Sequence[Condition]) -> ConditionType | None:
    """Return which of the two conditions of suspension is True."""
    kinds = (ConditionType.SUSPENDING, ConditionType.SUSPENDED)
    return next((kind for kind in kinds if conditions.is_true(known, kind)), None)


def suspended(known: Sequence[Condition], observed: Observed, *, now: datetime) -> Sequence[Condition]:
    """Move the state machine of suspension on."""
    suspend, updates = observed.cluster.spec.suspend, tuple[ConditionUpdate, ...]()
    match suspension(known):
        case ConditionType.SUSPENDING:
            if not observed.pods:
                updates = (
                    _NOT_PROVISIONED,
                    _held(ConditionType.SUSPENDING, "False"),
                    _held(ConditionType.SUSPENDED, "True"),
                )
        case ConditionType.SUSPENDED:
            if suspend is False:
                updates = (_held(ConditionType.SUSPENDED, "False"),)
        case _:
            is_asked = "True" if suspend is True else "False"
            updates = (_held(ConditionType.SUSPENDED, "False"), _held(ConditionType.SUSPENDING, is_asked))
    return conditions.updated(known, *updates, now=now)


def _held(kind: ConditionType, status: str) -> ConditionUpdate:
    return ConditionUpdate(kind, status, kind)
