"""The conditions of a RayService but those of suspension (spec rayservice §8.8, §13.2, §13.3, §15; acceptance 14, 15, 77, 83).

UpgradePaused, UpgradeStalled, UpgradeAborted and InvalidAnnotations are there only while there is a need, RollbackInProgress while a rollback
runs, or after a suspend. A pause that is over stays as False until the upgrade ends: the time without progress counts from its end.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import conditions, durations
from common.api.meta import SKEW, Condition, whole_seconds
from common.conditions import ConditionUpdate
from service_reconciler.observed import Names
from service_reconciler.promotion.control import Control
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING, ConditionType, Reason, caused

INITIALIZING_AGAIN: Final = "RayService is initializing after resuming from suspend."
HAS_ENDPOINTS = "Number of serve endpoints is greater than 0"
NO_ENDPOINTS = "Number of serve endpoints dropped to 0"
BOTH: Final = "Both active and pending Ray clusters exist"
ACTIVE_ONLY: Final = "Active Ray cluster exists and no pending Ray cluster"
NO_ACTIVE: Final = (
    "No active Ray cluster exists, and the RayService is not initializing. "
    "Please open a GitHub issue in the KubeRay repository."
)
_STARTING: Final = {Reason.INITIALIZING, Reason.INITIALIZING_TIMEOUT}
CONTROLS = (
    ConditionType.UPGRADE_PAUSED,
    ConditionType.UPGRADE_STALLED,
    ConditionType.UPGRADE_ABORTED,
    ConditionType.INVALID_ANNOTATIONS,
)
PAUSE_OVER = "The upgrade goes on."
SECOND: Final = timedelta(seconds=1)


class ReadyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the condition Ready depends on."""

    endpoints: int
    has_active: bool
    cause: str | None = None
    limit: timedelta | None = None
    """How long the first start may take."""


def ready(before: list[Condition], facts: ReadyFacts, *, now: datetime) -> ConditionUpdate:
    """Report whether requests can be served."""
    old = conditions.find(before, ConditionType.READY)
    if facts.endpoints > 0:
        return _ready("True", Reason.NON_ZERO_SERVE_ENDPOINTS, caused(HAS_ENDPOINTS, facts.cause))
    if old is None or _started_invalid(old, facts):
        return _ready("False", Reason.INITIALIZING, caused(RAY_SERVICE_INITIALIZING, facts.cause))
    if old.reason == Reason.INITIALIZING:
        spent = now - old.last_transition_time
        if facts.limit is not None and spent >= facts.limit:
            return _ready("False", Reason.INITIALIZING_TIMEOUT, timeout_text(facts.limit, spent))
        base = (
            INITIALIZING_AGAIN if old.message.startswith(INITIALIZING_AGAIN.rstrip(".")) else RAY_SERVICE_INITIALIZING
        )
        return _ready("False", Reason.INITIALIZING, caused(base, facts.cause))
    return _ready("False", Reason.ZERO_SERVE_ENDPOINTS, caused(NO_ENDPOINTS, facts.cause))


def starts_anew(before: list[Condition], facts: ReadyFacts, *, now: datetime) -> bool:
    """Return whether the time to become ready counts from now: the spec was invalid until now, or the clock was set back."""
    old = conditions.find(before, ConditionType.READY)
    if old is None or facts.endpoints > 0:
        return False
    is_ahead = facts.limit is not None and old.last_transition_time - now > facts.limit
    return _started_invalid(old, facts) or (old.reason == Reason.INITIALIZING and is_ahead)


def is_timed_out(before: list[Condition]) -> bool:
    """Return whether the service timed out; only suspend and resume start it again."""
    old = conditions.find(before, ConditionType.READY)
    return old is not None and old.reason == Reason.INITIALIZING_TIMEOUT


def timeout_text(limit: timedelta, spent: timedelta) -> str:
    """Return the message of a service that did not become ready in time."""
    return (
        f"RayService failed to become ready within the configured timeout of {durations.text(limit)}. "
        f"Time spent initializing: {durations.text(spent)}"
    )


def _started_invalid(old: Condition, facts: ReadyFacts) -> bool:
    return old.reason == Reason.VALIDATION_FAILED and not facts.has_active


def upgrade_in_progress(before: list[Condition], names: Names, *, cause: str | None = None) -> ConditionUpdate | None:
    """Report whether a second cluster is pending; None when the condition stays as it is."""
    if names.active and names.pending:
        return _upgrade("True", Reason.BOTH_CLUSTERS_EXIST, caused(BOTH, cause))
    if names.active:
        return _upgrade("False", Reason.NO_PENDING_CLUSTER, ACTIVE_ONLY)
    old = conditions.find(before, ConditionType.UPGRADE_IN_PROGRESS)
    if old is None:
        return _upgrade("False", Reason.INITIALIZING, RAY_SERVICE_INITIALIZING)
    if old.reason in _STARTING:
        return None
    return _upgrade("Unknown", Reason.NO_ACTIVE_CLUSTER, NO_ACTIVE)


def with_rollback(held: list[Condition], message: str | None, *, generation: int, now: datetime) -> list[Condition]:
    """Return the conditions with RollbackInProgress, or without it when there is no message."""
    kind = ConditionType.ROLLBACK_IN_PROGRESS
    is_on = conditions.is_true(held, kind)
    if message is None:
        return conditions.without(held, kind) if is_on else held
    update = ConditionUpdate(kind, "True", Reason.DESIRED_CLUSTER_SPEC_CHANGED, message)
    return held if is_on else conditions.updated(held, update, generation=generation, now=now)


def with_controls(
    held: list[Condition], control: Control, *, is_upgrading: bool, generation: int, now: datetime
) -> list[Condition]:
    """Return the conditions with those of the controls as they are now."""
    wanted = {update.type: update for update in _updates(held, control, is_upgrading=is_upgrading)}
    kept = conditions.without(held, *(kind for kind in CONTROLS if kind not in wanted))
    for update in wanted.values():
        kept = conditions.updated(kept, update, generation=generation, now=_moment(kept, update, now=now))
    return kept


def _moment(held: list[Condition], update: ConditionUpdate, *, now: datetime) -> datetime:
    """Return when a condition changes: a second after the last time at least, so that the events of both differ."""
    old = conditions.find(held, update.type)
    if old is None or old.status == update.status:
        return now
    ahead = old.last_transition_time - whole_seconds(now)
    is_soon = timedelta(0) <= ahead < SKEW  # what is further ahead was written before the clock was set back
    return old.last_transition_time + SECOND if is_soon else now


def _updates(held: list[Condition], control: Control, *, is_upgrading: bool) -> list[ConditionUpdate]:
    found: list[ConditionUpdate] = []
    if is_upgrading and control.pause is not None:
        text = control.pause.message
        found.append(_true(ConditionType.UPGRADE_PAUSED, control.pause.code, f"{text[0].upper()}{text[1:]}."))
    elif is_upgrading and conditions.find(held, ConditionType.UPGRADE_PAUSED) is not None:
        found.append(ConditionUpdate(ConditionType.UPGRADE_PAUSED, "False", Reason.PAUSE_OVER, PAUSE_OVER))
    if is_upgrading and control.stall is not None:
        found.append(_true(ConditionType.UPGRADE_STALLED, control.stall.code, control.stall.message))
    if control.abort is not None:
        found.append(_true(ConditionType.UPGRADE_ABORTED, control.abort.code, control.abort.message))
    if control.problems:
        text = "; ".join(control.problems)
        found.append(_true(ConditionType.INVALID_ANNOTATIONS, Reason.INVALID_VALUE, text))
    return found


def _ready(status: str, reason: Reason, message: str) -> ConditionUpdate:
    return ConditionUpdate(ConditionType.READY, status, reason, message)


def _upgrade(status: str, reason: Reason, message: str) -> ConditionUpdate:
    return ConditionUpdate(ConditionType.UPGRADE_IN_PROGRESS, status, reason, message)


def _true(kind: ConditionType, reason: Reason, message: str) -> ConditionUpdate:
    return ConditionUpdate(kind, "True", reason, message)
