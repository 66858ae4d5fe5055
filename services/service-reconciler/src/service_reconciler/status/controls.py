"""Conditions UpgradePaused, UpgradeStalled, UpgradeAborted and InvalidAnnotations: each is there only while there is a need.

A pause that is over stays as False until the upgrade ends: the time without progress counts from its end.
"""

from datetime import datetime, timedelta
from typing import Final

from common.api.meta import SKEW, Condition, whole_seconds
from service_reconciler.promotion.control import Control
from service_reconciler.reasons import ConditionType, Reason
from service_reconciler.status import conditions
from service_reconciler.status.conditions import News

KINDS = (
    ConditionType.UPGRADE_PAUSED,
    ConditionType.UPGRADE_STALLED,
    ConditionType.UPGRADE_ABORTED,
    ConditionType.INVALID_ANNOTATIONS,
)
RESUMED = "The upgrade goes on."
SECOND: Final = timedelta(seconds=1)


def put(
    held: list[Condition], control: Control, *, is_upgrading: bool, generation: int, now: datetime
) -> list[Condition]:
    """Return the conditions with those of the controls as they are now."""
    wanted = {news.type: news for news in _news(held, control, is_upgrading=is_upgrading)}
    kept = conditions.without(held, *(kind for kind in KINDS if kind not in wanted))
    for news in wanted.values():
        kept = conditions.put(kept, news, generation=generation, now=_moment(kept, news, now=now))
    return kept


def _moment(held: list[Condition], news: News, *, now: datetime) -> datetime:
    """Return when a condition changes: a second after the last time at least, since that tells the events of both apart."""
    old = conditions.find(held, news.type)
    if old is None or old.status == news.status:
        return now
    ahead = old.last_transition_time - whole_seconds(now)
    is_soon = timedelta(0) <= ahead < SKEW  # what is further ahead was written before the clock was set back
    return old.last_transition_time + SECOND if is_soon else now


def _news(held: list[Condition], control: Control, *, is_upgrading: bool) -> list[News]:
    news: list[News] = []
    if is_upgrading and control.pause is not None:
        text = control.pause.message
        news.append(_true(ConditionType.UPGRADE_PAUSED, control.pause.reason, f"{text[0].upper()}{text[1:]}."))
    elif is_upgrading and conditions.find(held, ConditionType.UPGRADE_PAUSED) is not None:
        over = News(type=ConditionType.UPGRADE_PAUSED, status="False", reason=Reason.PAUSE_OVER, message=RESUMED)
        news.append(over)
    if is_upgrading and control.stall is not None:
        news.append(_true(ConditionType.UPGRADE_STALLED, control.stall.reason, control.stall.message))
    if control.abort is not None:
        news.append(_true(ConditionType.UPGRADE_ABORTED, control.abort.reason, control.abort.message))
    if control.problems:
        text = "; ".join(control.problems)
        news.append(_true(ConditionType.INVALID_ANNOTATIONS, Reason.INVALID_VALUE, text))
    return news


def _true(kind: ConditionType, reason: Reason, message: str) -> News:
    return News(type=kind, status="True", reason=reason, message=message)
