"""One step of an upgrade or of a rollback: weights first, then capacities, one change at a time."""

from datetime import datetime

import msgspec

from traffic_manager.migration import capacity, weights
from traffic_manager.migration.state import Migration, Policy, Split


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What changes now; None means that it stays."""

    weights: Split | None = None
    capacities: Split | None = None
    note: str
    look_again_at: datetime | None = None


def decide(m: Migration, policy: Policy, *, now: datetime) -> Step:
    """Return the next change; nothing changes before the status shows the last one, which others act on."""
    if not m.is_mirrored:
        return Step(note="the status does not show the last change yet")
    split = weights.decide(m, policy, now=now)
    if (split.active, split.pending) != (m.active.weight, m.pending.weight):
        return Step(weights=split, note=split.note)
    room = capacity.decide(m, policy, now=now)
    if (room.active, room.pending) != (m.active.capacity, m.pending.capacity):
        return Step(capacities=room, note=room.note)
    note = split.note if split.note == room.note else f"{split.note}; {room.note}"
    moments = [each for each in (split.look_again_at, room.look_again_at) if each is not None]
    return Step(note=note, look_again_at=min(moments, default=None))
