"""One step of an upgrade or a rollback: weights before capacities, one change at a time."""

from datetime import datetime
from typing import Final

import msgspec

from common.runtime.actions import earliest
from common.upgrade.controls import Policy
from traffic_manager.migration import capacity, weights
from traffic_manager.migration.state import Migration, Split


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The next change; a field with None does not change."""

    weights: Split | None = None
    capacities: Split | None = None
    note: str
    is_shed: bool = False
    """Whether a cluster loses traffic because of its health."""
    requeue_at: datetime | None = None


HOLD: Final = Step(note="nothing that serves is in need")


def guard(m: Migration, policy: Policy) -> Step | None:
    """Return the change that health demands; None if there is none.

    It does not wait for the status, a pause or a new spec.
    """
    if (split := weights.shed(m)) is not None:
        return Step(weights=split, note=split.note, is_shed=True)
    if (room := capacity.guard(m, policy)) is not None:
        return Step(capacities=room, note=room.note)
    return None


def decide(m: Migration, policy: Policy, *, now: datetime) -> Step:
    """Return the next change; only guards act before the status shows the last change."""
    if (guarded := guard(m, policy)) is not None:
        return guarded
    if not m.is_mirrored:
        return Step(note="the status does not show the last change yet")
    split = weights.decide(m, policy, now=now)
    if (split.active, split.pending) != (m.active.weight, m.pending.weight):
        return Step(weights=split, note=split.note)
    room = capacity.decide(m, policy, now=now)
    if (room.active, room.pending) != (m.active.capacity, m.pending.capacity):
        return Step(capacities=room, note=room.note)
    note = split.note if split.note == room.note else f"{split.note}; {room.note}"
    return Step(note=note, requeue_at=earliest(split.requeue_at, room.requeue_at))
