"""The next change of an upgrade or a rollback: weights before capacities, one change at a time."""

from datetime import datetime
from typing import Final

import msgspec

from common.runtime.actions import earliest
from common.upgrade.controls import Policy
from traffic_manager.migration import capacity, weights
from traffic_manager.migration.state import Migration, Split


class MigrationStep(msgspec.Struct, frozen=True, kw_only=True):
    """The next change of an upgrade or a rollback. Weights or capacities that stay are None."""

    weights: Split | None = None
    capacities: Split | None = None
    note: str
    is_shed: bool = False
    """Whether a cluster loses traffic because of its health."""
    requeue_at: datetime | None = None


HOLD: Final = MigrationStep(note="nothing that serves is in need")


def guard(m: Migration, policy: Policy) -> MigrationStep | None:
    """Return the change that the health of the clusters demands; None if it demands none.

    The change does not wait for the status, the end of a pause or a new spec.
    """
    if (split := weights.shed(m)) is not None:
        return MigrationStep(weights=split, note=split.note, is_shed=True)
    if (capacities := capacity.guard(m, policy)) is not None:
        return MigrationStep(capacities=capacities, note=capacities.note)
    return None


def decide(m: Migration, policy: Policy, *, now: datetime) -> MigrationStep:
    """Return the next change of weights or of capacities, or no change while the upgrade waits.

    Until the status shows the previous change, only two kinds of change are returned: a cluster
    loses traffic because of its health, or it gets the capacity that its traffic needs.
    """
    if (guarded := guard(m, policy)) is not None:
        return guarded
    if not m.is_mirrored:
        return MigrationStep(note="the status does not show the last change yet")
    split = weights.decide(m, policy, now=now)
    if (split.active, split.pending) != (m.active.weight, m.pending.weight):
        return MigrationStep(weights=split, note=split.note)
    capacities = capacity.decide(m, policy, now=now)
    if (capacities.active, capacities.pending) != (m.active.capacity, m.pending.capacity):
        return MigrationStep(capacities=capacities, note=capacities.note)
    note = split.note if split.note == capacities.note else f"{split.note}; {capacities.note}"
    return MigrationStep(note=note, requeue_at=earliest(split.requeue_at, capacities.requeue_at))
