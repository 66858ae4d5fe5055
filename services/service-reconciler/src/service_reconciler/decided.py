"""What earlier reconciles decided about the upgrade of a RayService: decisions read it back from the conditions here alone.

Decisions read the observed state. What no object shows must be remembered: since when an upgrade, its pause and its rollback last, and
what was decided at a deadline, which would be decided anew by each reconcile after it. The record of that is the conditions: they are
written in one request with the names of the clusters, which is refused when the RayService changed meanwhile, and they outlive a
restart. A record beside them could differ from what users read. What is missing there counts as never decided.
"""

from datetime import datetime
from typing import Final

from common import conditions
from common.api.ray_service import RayService
from common.errors import Problem
from service_reconciler.reasons import ConditionType, Reason

PAUSED_BY_GATE: Final = "paused, for the gate "
"""How the text of the condition UpgradePaused begins after a failure; the gate with its figures follows."""


def holds(service: RayService, kind: ConditionType) -> bool:
    """Return whether a decision holds: that an upgrade is on, paused, rolled back or aborted."""
    return conditions.is_true(service.status.conditions, kind)


def is_rolling_back(service: RayService) -> bool:
    """Return whether the traffic rolls back."""
    return holds(service, ConditionType.ROLLBACK_IN_PROGRESS)


def changed_at(service: RayService, kind: ConditionType) -> datetime | None:
    """Return when something was decided last; None if it never was."""
    found = conditions.find(service.status.conditions, kind)
    return None if found is None else found.last_transition_time


def problem_of(service: RayService, kind: ConditionType) -> Problem[Reason] | None:
    """Return why an upgrade to this very generation was stalled or aborted; None if that was not decided."""
    found = conditions.find(service.status.conditions, kind)
    if (
        found is None
        or found.observed_generation != service.metadata.generation
        or found.reason not in set(Reason)
    ):
        return None
    return Problem(Reason(found.reason), found.message)


def failed_gate(service: RayService) -> str | None:
    """Return the gate, with its figures, whose failure paused the upgrade to this very generation; None if none did."""
    found = problem_of(service, ConditionType.UPGRADE_PAUSED)
    if found is None or found.code is not Reason.GATE_FAILED:
        return None
    return found.message[len(PAUSED_BY_GATE) :].removesuffix(".")


def is_earlier_to_blame(service: RayService) -> bool:
    """Return whether a gate had ended the upgrade to an earlier generation when this one came."""
    found, meta = (
        conditions.find(service.status.conditions, ConditionType.UPGRADE_ABORTED),
        service.metadata,
    )
    if found is None or found.status != "True":
        return False
    is_earlier = found.observed_generation != meta.generation and found.reason == Reason.GATE_FAILED
    return is_earlier or found.reason == Reason.EARLIER_GATE_FAILED
