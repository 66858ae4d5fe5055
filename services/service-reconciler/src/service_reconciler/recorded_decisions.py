"""Decisions of earlier reconciles about the upgrade of a RayService.

Some facts are visible in no object: when an upgrade, its pause or its rollback began, and what was
decided at a deadline. Without a record, each later reconcile would decide about the deadline again.
The conditions of the RayService are this record, since they survive a restart. One request writes
both the conditions and the cluster names, and the API server refuses it if the RayService changed
in the meantime. A second record could contradict the conditions that users read. A missing
condition counts as "never decided". Only this module reads decisions back from the conditions.
"""

from datetime import datetime
from typing import Final

from common import conditions
from common.api.ray_service import RayService
from common.errors import Problem
from common.upgrade.service_conditions import ConditionType, Reason

PAUSED_BY_GATE: Final = "paused, for the gate "
"""Start of the message of condition UpgradePaused after a failed gate; the gate follows."""


def holds(service: RayService, kind: ConditionType) -> bool:
    """Return whether the condition `kind` (upgrade in progress, paused, aborted ...) is true."""
    return conditions.is_true(service.status.conditions, kind)


def is_rolling_back(service: RayService) -> bool:
    """Return whether a rollback is in progress."""
    return holds(service, ConditionType.ROLLBACK_IN_PROGRESS)


def changed_at(service: RayService, kind: ConditionType) -> datetime | None:
    """Return the last transition time of the condition `kind`; None if it was never set."""
    found = conditions.find(service.status.conditions, kind)
    return None if found is None else found.last_transition_time


def problem_of(service: RayService, kind: ConditionType) -> Problem[Reason] | None:
    """Return why the upgrade was stalled or aborted; None if it was not.

    A condition of another generation of the spec does not count.
    """
    found = conditions.find(service.status.conditions, kind)
    if (
        found is None
        or found.observed_generation != service.metadata.generation
        or found.reason not in set(Reason)
    ):
        return None
    return Problem(Reason(found.reason), found.message)


def failed_gate(service: RayService) -> str | None:
    """Return the gate, with its figures, whose failure paused the upgrade; None if no gate did.

    A condition of another generation of the spec does not count.
    """
    found = problem_of(service, ConditionType.UPGRADE_PAUSED)
    if found is None or found.code is not Reason.GATE_FAILED:
        return None
    return found.message[len(PAUSED_BY_GATE) :].removesuffix(".")


def prior_gate_failed(service: RayService) -> bool:
    """Return whether a gate ended the upgrade to an earlier generation of the spec.

    Still true in later reconciles, when the reason of condition UpgradeAborted is
    `EarlierGateFailed`.
    """
    found, meta = (
        conditions.find(service.status.conditions, ConditionType.UPGRADE_ABORTED),
        service.metadata,
    )
    if found is None or found.status != "True":
        return False
    is_earlier = found.observed_generation != meta.generation and found.reason == Reason.GATE_FAILED
    return is_earlier or found.reason == Reason.EARLIER_GATE_FAILED
