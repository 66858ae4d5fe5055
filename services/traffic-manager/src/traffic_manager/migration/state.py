"""Input and output types of the decisions about weights and capacities."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from common.upgrade.controls import Policy
from common.upgrade.events import Direction

STALL_TIMEOUT: Final = timedelta(seconds=10)
"""Maximum time for which an upgrade or a rollback waits although nothing changes.

A rollback waits for a Gateway that is not ready, and ignores the Gateway afterwards. An upgrade
waits for space for new pods, and afterwards shrinks the old cluster if its options allow that.
"""


class Standing(StrEnum):
    """Whether the UpgradePolicy lets the pending cluster get more than its present weight."""

    PROVEN = "proven"
    """No policy applies, or the cluster has passed the policy at its weight."""
    UNPROVEN = "unproven"
    FAILED = "failed"
    """The cluster failed a gate."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the active or the pending cluster."""

    capacity: int
    """`target_capacity` that Serve has accepted, in percent."""
    weight: int
    """Percent of the traffic that the routes have sent to the cluster since `moved_at`."""
    moved_at: datetime | None = None
    proven: int = 0
    """Proven capacity: percent of the traffic that the cluster can carry according to observations.

    Only dashboard answers after the last PUT of a Serve config count.
    """
    not_ready_reason: str = ""
    """Why the proven capacity is below the target capacity."""
    reported: float | None = None
    """Target capacity that Serve reports; None if the dashboard does not answer."""
    is_alive: bool = True
    """Whether at least one application serves requests."""
    sustainable: int = 100
    """Percent of the traffic that the cluster may keep, given its observed health.

    It is not lowered while the health is unknown.
    """
    surviving: int = 100
    """Percent of the traffic that the best application can carry; 0 if no application serves."""
    unhealthy_reason: str = ""
    withheld: str = ""
    """Why the cluster keeps traffic that it cannot carry completely; empty if it keeps none."""
    has_failed_gate: bool = False
    """Whether all traffic leaves the cluster because of a failed gate, not because of its health.

    The cluster still occupies its capacity.
    """
    ready: int = 0
    """Percent of the traffic that the cluster can take over at once, with any Serve config."""
    rescue: int = 0
    """Percent of the traffic that the cluster can take over from a cluster that serves nothing."""
    sent: int | None = None
    """Largest weight that a Gateway may still apply while the current route is not accepted."""
    was_shed: bool = False
    """Whether the cluster lost traffic because of its health and has not gained any since."""
    healthy_since: datetime | None = None

    @property
    def excess(self) -> int:
        """Percent of the traffic that the cluster receives but cannot carry."""
        return max(0, self.weight - self.sustainable)


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an upgrade or a rollback at one moment."""

    direction: Direction
    active: ClusterState
    pending: ClusterState
    standing: Standing = Standing.PROVEN
    distrust: str = ""
    """Why the pending cluster has not passed its UpgradePolicy.

    Empty if it has passed, or if no UpgradePolicy applies.
    """
    pause: str | None = None
    """Why the upgrade may not go forward; None if it may.

    Guards and a rollback are still allowed.
    """
    gateway_problem: str | None = None
    """Why the Gateway takes no requests; None if it takes requests."""
    route_problem: str | None = None
    """Why the Gateway has not applied the current route; None if it has applied the route."""
    lag: str | None = None
    """Why a Gateway may still apply an earlier generation of the route; None if no Gateway can."""
    changed_at: datetime | None = None
    is_mirrored: bool = True
    """Whether the RayService's status already shows the last change of weights or capacities."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The weights or the capacities, in percent, of both clusters from now on, with the reason."""

    active: int
    pending: int
    note: str
    requeue_at: datetime | None = None
    """Time at which the next change becomes possible even if nothing else changes."""


def is_hurried(m: Migration, policy: Policy) -> bool:
    """Return whether a rollback skips the interval and the surge limit.

    True if the pending cluster serves nothing, or if the options have step 0 or no room for a step.
    """
    return m.direction is Direction.BACK and (not m.pending.is_alive or not policy.may_progress)


def is_stalled(m: Migration, *, now: datetime) -> bool:
    """Return whether nothing has changed for `STALL_TIMEOUT`, so that waiting longer is useless."""
    return m.changed_at is None or now >= m.changed_at + STALL_TIMEOUT
