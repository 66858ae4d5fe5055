"""Update status conditions as Kubernetes' own helper does (spec raycluster §13, rayservice §13.2).

A new type is appended. A known type is replaced in place, and its transition time changes only if
its status changes.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from common.api.meta import MAX_MESSAGE_LENGTH, Condition, clipped, whole_seconds


class ConditionUpdate(msgspec.Struct, frozen=True):
    """New values of a condition."""

    type: str
    status: str
    reason: str
    message: str = ""


def find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Return the condition of a type; None if there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Sequence[Condition], kind: str) -> bool:
    """Return whether the condition of a type is True."""
    condition = find(conditions, kind)
    return condition is not None and condition.status == "True"


def updated(
    conditions: Sequence[Condition],
    *updates: ConditionUpdate,
    now: datetime,
    generation: int | None = None,
) -> list[Condition]:
    """Return the conditions with updates applied.

    Without a `generation` each condition keeps its observed generation.
    """
    after = list(conditions)
    for update in updates:
        old = find(after, update.type)
        is_same = old is not None and old.status == update.status
        observed_at = 0 if old is None else old.observed_generation
        new = Condition(
            type=str(update.type),
            status=update.status,
            reason=str(update.reason),
            message=clipped(update.message, MAX_MESSAGE_LENGTH),
            observed_generation=observed_at if generation is None else generation,
            last_transition_time=old.last_transition_time
            if old is not None and is_same
            else whole_seconds(now),
        )
        after = (
            [*after, new]
            if old is None
            else [new if condition.type == update.type else condition for condition in after]
        )
    return after


def without(conditions: Sequence[Condition], *kinds: str) -> list[Condition]:
    """Return the conditions without some types.

    If a removed type is set again, it gets a new transition time.
    """
    return [condition for condition in conditions if condition.type not in kinds]
