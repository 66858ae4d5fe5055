"""The conditions RayClusterSuspending and RayClusterSuspended, and what they do to RayClusterProvisioned.

Normal (both False) → Suspending → Suspended → Normal; never both True. Leaving Suspended needs `suspend: false` in the spec:
to remove the field is not enough (spec raycluster §13.5; acceptance cases 73-78).
"""

from datetime import datetime

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionType
from cluster_reconciler.status import conditions, provisioned
from cluster_reconciler.status.conditions import Conditions, Fact


def state(known: Conditions) -> ConditionType | None:
    """Return which of the two conditions is True."""
    for kind in (ConditionType.SUSPENDING, ConditionType.SUSPENDED):
        found = conditions.find(known, kind)
        if found is not None and found.status == "True":
            return kind
    return None


def compute(known: Conditions, observed: Observed, *, now: datetime) -> Conditions:
    """Move the state machine on."""
    suspend = observed.cluster.spec.suspend
    match state(known):
        case ConditionType.SUSPENDING:
            if observed.pods:
                return known
            known = conditions.put(known, ConditionType.PROVISIONED, provisioned.SUSPENDED, now=now)
            known = _put(known, ConditionType.SUSPENDING, holds=False, now=now)
            return _put(known, ConditionType.SUSPENDED, holds=True, now=now)
        case ConditionType.SUSPENDED:
            if suspend is False:
                return _put(known, ConditionType.SUSPENDED, holds=False, now=now)
            return known
        case _:
            known = _put(known, ConditionType.SUSPENDED, holds=False, now=now)
            return _put(known, ConditionType.SUSPENDING, holds=suspend is True, now=now)


def _put(known: Conditions, kind: ConditionType, *, holds: bool, now: datetime) -> Conditions:
    return conditions.put(known, kind, Fact("True" if holds else "False", kind), now=now)
