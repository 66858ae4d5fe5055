"""The list of conditions, kept as Kubernetes' own helper keeps it (spec raycluster §13).

A new type is appended; a known one is changed in place, and its transition time moves only with its status.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from common.api.clip import LONGEST_MESSAGE, clipped
from common.api.meta import Condition, whole_seconds
from common.api.ray_cluster import RayClusterStatus

Conditions = tuple[Condition, ...]


class Fact(msgspec.Struct, frozen=True):
    """What a condition should say."""

    status: str
    reason: str
    message: str = ""


def find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Return the condition of a type."""
    return next((each for each in conditions if each.type == kind), None)


def is_true(status: RayClusterStatus, kind: str) -> bool:
    """Tell whether a status holds a condition that is True."""
    found = find(status.conditions, kind)
    return found is not None and found.status == "True"


def put(conditions: Conditions, kind: str, fact: Fact, *, now: datetime) -> Conditions:
    """Return the conditions with one of them saying what it should."""
    old = find(conditions, kind)
    moved = old is None or old.status != fact.status
    new = Condition(
        type=kind,
        status=fact.status,
        reason=fact.reason,
        message=clipped(fact.message, LONGEST_MESSAGE),
        observed_generation=0 if old is None else old.observed_generation,
        last_transition_time=whole_seconds(now) if old is None or moved else old.last_transition_time,
    )
    if old is None:
        return (*conditions, new)
    return tuple(new if each is old else each for each in conditions)


def drop(conditions: Conditions, kind: str) -> Conditions:
    """Return the conditions without one type."""
    return tuple(each for each in conditions if each.type != kind)
