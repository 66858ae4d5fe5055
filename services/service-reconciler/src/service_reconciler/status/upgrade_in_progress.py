"""Condition UpgradeInProgress: is a second cluster on its way (spec rayservice §13.2 e-g)."""

from typing import Final

from common.api.meta import Condition
from service_reconciler.observed import Names
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING, ConditionType, Reason
from service_reconciler.status import conditions
from service_reconciler.status.conditions import News

BOTH: Final = "Both active and pending Ray clusters exist"
ACTIVE_ONLY: Final = "Active Ray cluster exists and no pending Ray cluster"
NO_ACTIVE: Final = (
    "No active Ray cluster exists, and the RayService is not initializing. "
    "Please open a GitHub issue in the KubeRay repository."
)
_STARTING: Final = {Reason.INITIALIZING, Reason.INITIALIZING_TIMEOUT}


def compute(before: list[Condition], names: Names, *, cause: str | None = None) -> News | None:
    """Return what the condition says now, None when it stays as it is."""
    if names.active and names.pending:
        return _news("True", Reason.BOTH_CLUSTERS_EXIST, conditions.caused(BOTH, cause))
    if names.active:
        return _news("False", Reason.NO_PENDING_CLUSTER, ACTIVE_ONLY)
    old = conditions.find(before, ConditionType.UPGRADE_IN_PROGRESS)
    if old is None:
        return _news("False", Reason.INITIALIZING, RAY_SERVICE_INITIALIZING)
    if old.reason in _STARTING:
        return None
    return _news("Unknown", Reason.NO_ACTIVE_CLUSTER, NO_ACTIVE)


def _news(status: str, reason: Reason, message: str) -> News:
    return News(type=ConditionType.UPGRADE_IN_PROGRESS, status=status, reason=reason, message=message)
