"""Whether all pods go, or nothing happens to them, because the cluster is to be suspended.

Suspending is atomic: first the condition is written, then all pods go, then the cluster counts as suspended
(spec raycluster §9.2; acceptance cases 73-79). Pods of ours that come afterwards, from an owner that was late, go too.
"""

from enum import StrEnum

from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.reasons import ConditionType


class SuspendMove(StrEnum):
    """What suspension asks for."""

    GO_ON = "go on"
    WAIT = "wait"
    DELETE_ALL = "delete all pods"


def decide(observed: Observed, *, has_conditions: bool) -> SuspendMove:
    """Return what suspension asks for; `has_conditions` is the gate RayClusterStatusConditions."""
    wants = observed.cluster.spec.suspend is True
    if not has_conditions:
        return _delete_all(observed) if wants else SuspendMove.GO_ON
    if observed.holds(ConditionType.SUSPENDING):
        return _delete_all(observed)
    if observed.holds(ConditionType.SUSPENDED):
        return _delete_all(observed) if any(map(observed.controls, observed.pods)) else SuspendMove.WAIT
    return SuspendMove.WAIT if wants else SuspendMove.GO_ON


def _delete_all(observed: Observed) -> SuspendMove:
    """Ask once: pods that are already going need no second request."""
    return SuspendMove.WAIT if all(is_terminating(pod) for pod in observed.pods) else SuspendMove.DELETE_ALL
