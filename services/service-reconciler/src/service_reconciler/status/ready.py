"""Condition Ready: can requests be served (spec rayservice §13.2 a-d, §15; acceptance 14, 15, 77, 83)."""

from datetime import datetime, timedelta

import msgspec

from common import durations
from common.api.meta import Condition
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING, ConditionType, Reason
from service_reconciler.status import conditions
from service_reconciler.status.conditions import News

RESUMED = "RayService is initializing after resuming from suspend."
HAS_ENDPOINTS = "Number of serve endpoints is greater than 0"
NO_ENDPOINTS = "Number of serve endpoints dropped to 0"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the condition depends on."""

    endpoints: int
    has_active: bool
    cause: str | None = None
    limit: timedelta | None = None
    """How long the first start may take."""


def compute(before: list[Condition], facts: Facts, *, now: datetime) -> News:
    """Return what the condition says now."""
    old = conditions.find(before, ConditionType.READY)
    if facts.endpoints > 0:
        return _news("True", Reason.NON_ZERO_SERVE_ENDPOINTS, conditions.caused(HAS_ENDPOINTS, facts.cause))
    if old is None or _started_invalid(old, facts):
        return _news("False", Reason.INITIALIZING, conditions.caused(RAY_SERVICE_INITIALIZING, facts.cause))
    if old.reason == Reason.INITIALIZING:
        spent = now - old.last_transition_time
        if facts.limit is not None and spent >= facts.limit:
            return _news("False", Reason.INITIALIZING_TIMEOUT, timeout_text(facts.limit, spent))
        base = RESUMED if old.message.startswith(RESUMED.rstrip(".")) else RAY_SERVICE_INITIALIZING
        return _news("False", Reason.INITIALIZING, conditions.caused(base, facts.cause))
    return _news("False", Reason.ZERO_SERVE_ENDPOINTS, conditions.caused(NO_ENDPOINTS, facts.cause))


def starts_anew(before: list[Condition], facts: Facts, *, now: datetime) -> bool:
    """Tell whether the time to become ready counts from now: the spec was invalid until now, or the clock was set back."""
    old = conditions.find(before, ConditionType.READY)
    if old is None or facts.endpoints > 0:
        return False
    is_ahead = facts.limit is not None and old.last_transition_time - now > facts.limit
    return _started_invalid(old, facts) or (old.reason == Reason.INITIALIZING and is_ahead)


def is_timed_out(before: list[Condition]) -> bool:
    """Tell whether the service gave up; only suspend and resume start it again."""
    old = conditions.find(before, ConditionType.READY)
    return old is not None and old.reason == Reason.INITIALIZING_TIMEOUT


def timeout_text(limit: timedelta, spent: timedelta) -> str:
    """Return the message of a service that did not become ready in time."""
    return (
        f"RayService failed to become ready within the configured timeout of {durations.text(limit)}. "
        f"Time spent initializing: {durations.text(spent)}"
    )


def _started_invalid(old: Condition, facts: Facts) -> bool:
    return old.reason == Reason.VALIDATION_FAILED and not facts.has_active


def _news(status: str, reason: Reason, message: str) -> News:
    return News(type=ConditionType.READY, status=status, reason=reason, message=message)
