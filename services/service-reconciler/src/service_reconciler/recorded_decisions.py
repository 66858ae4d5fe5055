"""Decisions of earlier reconciles about the upgrade of a RayService, read from its conditions.

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
from common.api.meta import Condition
from common.api.ray_service import RayService
from common.errors import Problem
from common.upgrade.service_conditions import ConditionType, Reason

PAUSED_BY_GATE: Final = "paused, for the gate "
"""Start of the message of condition UpgradePaused after a failed gate; the gate's text follows."""


def holds(service: RayService, kind: ConditionType) -> bool:
    """Return whether the condition `kind` (upgrade in progress, paused, aborted ...) is true."""
    return conditions.is_true(service.status.conditions, kind)


def is_rolling_back(service: RayService) -> bool:
    """Return whether a rollback is in progress."""
    return holds(service, ConditionType.ROLLBACK_IN_PROGRESS)


def changed_at(service: RayService, kind: ConditionType) -> datetime | None:
    """Return the last transition time of the condition `kind`; None if it was never set."""
    condition = conditions.find(service.status.conditions, kind)
    return None if condition is None else condition.last_transition_time


def problem_of(service: RayService, kind: ConditionType) -> Problem[Reason] | None:
    """Return reason and message of a condition about an upgrade, such as UpgradeStalled.

    None if the condition is missing or belongs to a different generation of the spec.
    """
    condition = conditions.find(service.status.conditions, kind)
    if (
        condition is None
        or condition.observed_generation != service.metadata.generation
        or condition.reason not in set(Reason)
    ):
        return None
    return Problem(Reason(condition.reason), condition.message)


def has_failed_gate(service: RayService) -> bool:
    """Return whether a failed gate paused the upgrade to this generation of the spec."""
    paused = problem_of(service, ConditionType.UPGRADE_PAUSED)
    return paused is not None and paused.code is Reason.GATE_FAILED


def failed_gate(service: RayService) -> str | None:
    """Return the failed gate and its figures from condition UpgradePaused; None if none failed."""
    paused = problem_of(service, ConditionType.UPGRADE_PAUSED)
    if paused is None or paused.code is not Reason.GATE_FAILED:
        return None
    return paused.message[len(PAUSED_BY_GATE) :].removesuffix(".")


def was_reported(before: list[Condition], problem: Problem[Reason]) -> bool:
    """Return whether the conditions `before` already describe a problem.

    Conditions Ready and UpgradeInProgress have KubeRay's reasons, so the problem is only in their
    message. No other record shows that an Event about the problem was sent.
    """
    return any(problem.message in condition.message for condition in before)


def prior_gate_failed(service: RayService) -> bool:
    """Return whether a failed gate ended the upgrade to an earlier generation of the spec.

    This is still true in later reconciles, when the reason of condition UpgradeAborted is
    `EarlierGateFailed`.
    """
    condition, meta = (
        conditions.find(service.status.conditions, ConditionType.UPGRADE_ABORTED),
        service.metadata,
    )
    if condition is None or condition.status != "True":
        return False
    is_earlier = (
        condition.observed_generation != meta.generation and condition.reason == Reason.GATE_FAILED
    )
    return is_earlier or condition.reason == Reason.EARLIER_GATE_FAILED
