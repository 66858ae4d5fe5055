"""Simulates an upgrade in steps with traffic-manager's own decisions, without any delay.

Real upgrades take longer: pods start, images are pulled, a Gateway applies routes. The upgrade
strategy is read as written, so that an invalid one can be shown too.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from common.api.ray_service import RayService
from common.feature_gates import BETA, Gates
from common.ray import serve_writer
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from common.upgrade.traffic_record import WHOLE
from traffic_manager.migration import step
from traffic_manager.migration.state import ClusterState, Migration

DEFAULT: Final = "NewCluster"


def get_strategy(service: RayService) -> str:
    """Return `spec.upgradeStrategy.type` as written, or the default `NewCluster`."""
    return str(service.raw_upgrade_strategy.get("type") or DEFAULT)


def build_policy(service: RayService, gates: Gates = BETA) -> Policy | None:
    """Return the options of a RayService's upgrade in steps.

    The result is None if all traffic moves at once, or if the options are invalid.
    """
    if not serve_writer.is_incremental(service, gates):
        return None
    unavailable = upgrade_controls.read_controls(service).unavailable
    policy = upgrade_controls.policy_of(service.raw_upgrade_options, unavailable=unavailable)
    return policy if policy is not None and policy.step > 0 else None


_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MAX_MOMENTS: Final = 1000
"""Maximum number of simulated changes. No upgrade has more than 100 moves of traffic, and 100
changes of capacity for each cluster.
"""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Capacities and traffic weights in percent, at a time after the new cluster was ready."""

    seconds: float
    active_capacity: int
    pending_capacity: int
    weight: int
    """Weight of the new cluster."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """All changes of a simulated upgrade."""

    moments: tuple[Moment, ...]
    is_finished: bool
    """Whether the simulated upgrade reaches its end."""

    @property
    def weights(self) -> tuple[int, ...]:
        """Weights of the new cluster in percent, one for each move of traffic."""
        return tuple(dict.fromkeys(moment.weight for moment in self.moments if moment.weight))

    @property
    def length(self) -> timedelta:
        """Time from when the new cluster is ready until it has all traffic."""
        return timedelta(seconds=self.moments[-1].seconds if self.moments else 0)

    @property
    def max_capacity(self) -> int:
        """Highest total capacity of both clusters, in percent of one full cluster."""
        return max(
            (moment.active_capacity + moment.pending_capacity for moment in self.moments),
            default=WHOLE,
        )

    @property
    def min_capacity(self) -> int:
        """Lowest total capacity of both clusters, in percent of one full cluster."""
        return min(
            (moment.active_capacity + moment.pending_capacity for moment in self.moments),
            default=WHOLE,
        )


def simulate(policy: Policy) -> Rollout:
    """Simulate an upgrade whose new cluster is ready as soon as the route contains it.

    The first interval begins at that moment, as in KubeRay. If a real cluster takes longer to
    start, part or all of that interval is over when the cluster is ready.
    """
    now, moments = _START, [Moment(seconds=0, active_capacity=WHOLE, pending_capacity=0, weight=0)]
    migration = _build_migration(WHOLE, 0, 0, _START, None)
    for _ in range(_MAX_MOMENTS):
        if (migration.active.capacity, migration.pending.capacity, migration.pending.weight) == (
            0,
            WHOLE,
            WHOLE,
        ):
            return Rollout(moments=tuple(moments), is_finished=True)
        chosen = step.decide(migration, policy, now=now)
        old, new = migration.active, migration.pending
        if chosen.weights is not None:
            migration = _build_migration(
                old.capacity, new.capacity, chosen.weights.pending, now, now
            )
        elif chosen.capacities is not None:
            moved = migration.pending.moved_at
            migration = _build_migration(
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
                active_capacity=migration.active.capacity,
                pending_capacity=migration.pending.capacity,
                weight=migration.pending.weight,
            )
        )
    return Rollout(moments=tuple(moments), is_finished=False)


def _build_migration(
    old: int, new: int, weight: int, moved_at: datetime | None, changed_at: datetime | None
) -> Migration:
    return Migration(
        direction=Direction.FORWARD,
        active=ClusterState(capacity=old, weight=WHOLE - weight, proven=old, reported=old),
        pending=ClusterState(
            capacity=new, weight=weight, moved_at=moved_at, proven=new, reported=new
        ),
        changed_at=changed_at,
    )
