"""How one condition is set among others (spec rayservice §13.2): in place, with a new transition time only for a new status."""

from datetime import datetime

import msgspec

from common.api.clip import LONGEST_MESSAGE, clipped
from common.api.meta import Condition, whole_seconds
from service_reconciler.reasons import ConditionType, Reason


class News(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition says from now on."""

    type: ConditionType
    status: str
    reason: Reason
    message: str


def find(conditions: list[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of a type."""
    return next((each for each in conditions if each.type == kind), None)


def is_true(conditions: list[Condition], kind: ConditionType) -> bool:
    """Tell whether a condition is True."""
    found = find(conditions, kind)
    return found is not None and found.status == "True"


def put(conditions: list[Condition], news: News, *, generation: int, now: datetime) -> list[Condition]:
    """Return the conditions with one set; a type that is new comes last."""
    old = find(conditions, news.type)
    changed = old is None or old.status != news.status
    new = Condition(
        type=news.type.value,
        status=news.status,
        observed_generation=generation,
        last_transition_time=whole_seconds(now) if changed or old is None else old.last_transition_time,
        reason=news.reason.value,
        message=clipped(news.message, LONGEST_MESSAGE),
    )
    if old is None:
        return [*conditions, new]
    return [new if each.type == news.type else each for each in conditions]


def without(conditions: list[Condition], *kinds: ConditionType) -> list[Condition]:
    """Return the conditions except for some types, so that these start anew."""
    return [each for each in conditions if each.type not in kinds]


def caused(message: str, cause: str | None) -> str:
    """Add the cause to a message, if one is known."""
    return f"{message.rstrip('.')}: {cause}" if cause else message
