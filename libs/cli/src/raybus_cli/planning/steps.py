"""The upgrade strategy of a RayService as written, so that an invalid one can be shown too, and the course of an upgrade in steps without blocking reasons.

The course is that of traffic-manager's own decisions, simulated without delays.

Delays beyond that (pods that start, images that are pulled, a Gateway) are not included.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from common.api.ray_service import RayService
from common.feature_gates import BETA, Gates
from common.ray import serve_writer
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Policy
from common.upgrade.traffic_record import WHOLE
from traffic_manager.migration import step
from traffic_manager.migration.state import Direction, Migration, Side

DEFAULT: Final = "NewCluster"


def strategy(service: RayService) -> str:
    """Return the type of the upgrade strategy."""
    return str(service.raw_upgrade_strategy.get("type") or DEFAULT)


def policy(service: RayService, gates: Gates = BETA) -> Policy | None:
    """Return the traffic policy; None where the traffic moves at once, or where the options are invalid."""
    if not serve_writer.is_incremental(service, gates):
        return None
    unavailable = upgrade_controls.of(service).unavailable
    found = upgrade_controls.policy_of(service.raw_upgrade_options, unavailable=unavailable)
    return found if found is not None and found.step > 0 else None


_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MOST: Final = 1000
"""More changes than any upgrade has: 100 moves of traffic, and as many of capacity for each cluster."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Capacities and weights in percent, so many seconds after the new cluster was ready."""

    seconds: float
    active_capacity: int
    pending_capacity: int
    weight: int
    """Of the new cluster."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """All changes of an upgrade."""

    moments: tuple[Moment, ...]
    is_finished: bool
    """Whether these options let the upgrade end at all."""

    @property
    def weights(self) -> tuple[int, ...]:
        """Return what the new cluster gets of the traffic, move by move."""
        return tuple(dict.fromkeys(each.weight for each in self.moments if each.weight))

    @property
    def length(self) -> timedelta:
        """Return how long the traffic takes to move."""
        return timedelta(seconds=self.moments[-1].seconds if self.moments else 0)

    @property
    def most(self) -> int:
        """Return the most capacity that both have together, in percent."""
        return max(
            (each.active_capacity + each.pending_capacity for each in self.moments), default=WHOLE
        )

    @property
    def least(self) -> int:
        """Return the least capacity that both have together, in percent."""
        return min(
            (each.active_capacity + each.pending_capacity for each in self.moments), default=WHOLE
        )


def simulate(policy: Policy) -> Rollout:
    """Return the course of an upgrade with these options, whose new cluster is ready as soon as it is in the route.

    The first interval counts from then, as in KubeRay, so a cluster that starts slowly has waited it, or a part of it, before it is ready.
    """
    now, moments = _START, [Moment(seconds=0, active_capacity=WHOLE, pending_capacity=0, weight=0)]
    held = _migration(WHOLE, 0, 0, _START, None)
    for _ in range(_MOST):
        if (held.active.capacity, held.pending.capacity, held.pending.weight) == (0, WHOLE, WHOLE):
            return Rollout(moments=tuple(moments), is_finished=True)
        chosen = step.decide(held, policy, now=now)
        old, new = held.active, held.pending
        if chosen.weights is not None:
            held = _migration(old.capacity, new.capacity, chosen.weights.pending, now, now)
        elif chosen.capacities is not None:
            moved = held.pending.moved_at
            held = _migration(
                chosen.capacities.active, chosen.capacities.pending, new.weight, moved, now
            )
        elif chosen.requeue_at is not None and chosen.requeue_at > now:
            now = chosen.requeue_at
            continue
        else:
            break
        moments.append(
            Moment(
                seconds=(now - _START).total_seconds(),
                active_capacity=held.active.capacity,
                pending_capacity=held.pending.capacity,
                weight=held.pending.weight,
            )
        )
    return Rollout(moments=tuple(moments), is_finished=False)


def _migration(
    old: int, new: int, weight: int, moved_at: datetime | None, changed_at: datetime | None
) -> Migration:
    return Migration(
        direction=Direction.FORWARD,
        active=Side(capacity=old, weight=WHOLE - weight, proven=old, reported=old),
        pending=Side(capacity=new, weight=weight, moved_at=moved_at, proven=new, reported=new),
        changed_at=changed_at,
    )
