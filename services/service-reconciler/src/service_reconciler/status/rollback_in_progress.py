"""Condition RollbackInProgress: it is there only while a rollback runs, or after a suspend (spec rayservice §8.8, §13.3)."""

from datetime import datetime

from common.api.meta import Condition
from service_reconciler.reasons import ConditionType, Reason
from service_reconciler.status import conditions
from service_reconciler.status.conditions import News


def put(held: list[Condition], message: str | None, *, generation: int, now: datetime) -> list[Condition]:
    """Return the conditions with this one, or without it when there is no message."""
    if message is None:
        is_on = conditions.is_true(held, ConditionType.ROLLBACK_IN_PROGRESS)
        return conditions.without(held, ConditionType.ROLLBACK_IN_PROGRESS) if is_on else held
    if conditions.is_true(held, ConditionType.ROLLBACK_IN_PROGRESS):
        return held
    news = News(
        type=ConditionType.ROLLBACK_IN_PROGRESS,
        status="True",
        reason=Reason.DESIRED_CLUSTER_SPEC_CHANGED,
        message=message,
    )
    return conditions.put(held, news, generation=generation, now=now)
