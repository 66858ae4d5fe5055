"""What the decisions about weights and capacities are made from."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from common.upgrade.controls import Policy

LATE: Final = timedelta(seconds=10)
"""How long a rollback waits for a Gateway that is not ready, and an upgrade for room, before it takes another way."""


class Direction(StrEnum):
    """Where the traffic goes."""

    FORWARD = "forward"
    """To the pending cluster."""
    BACK = "back"
    """To the active cluster: the upgrade is being rolled back."""


class Standing(StrEnum):
    """Whether the pending cluster may get more traffic than its UpgradePolicy has let it have."""

    PROVEN = "proven"
    """No policy bears on it, or it has passed what its policy asks for at its weight."""
    UNPROVEN = "unproven"
    FAILED = "failed"
    """It failed a gate."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two clusters."""

    capacity: int
    """`target_capacity` that Serve has accepted."""
    weight: int
    """Its share of the traffic, which last changed at `moved_at`."""
    moved_at: datetime | None = None
    proven: int = 0
    """Its proven capacity: the percent of the traffic that it was observed to be able to carry (design rule 8)."""
    not_ready_reason: str = ""
    """Why the proven capacity is not all of its capacity."""
    reported: float | None = None
    """The target capacity that Serve reports, None without an answer."""
    is_alive: bool = True
    """Whether some application of it serves."""
    sustainable: int = 100
    """The most traffic that its observed health allows it to keep; what is unknown does not lower it."""
    surviving: int = 100
    """The most traffic that its best application can carry; 0 if it serves nothing."""
    unhealthy_reason: str = ""
    withheld: str = ""
    """Why it keeps traffic that not every application of it can carry."""
    has_failed_gate: bool = False
    """Whether all traffic leaves it for a gate, not for its health: it still holds its capacity."""
    ready: int = 0
    """The most traffic that it can take over at once: its ready capacity, whatever Serve config it runs."""
    rescue: int = 0
    """The most traffic that it can take over from a cluster that serves nothing."""
    sent: int | None = None
    """The most that a Gateway may still send it while the route is not accepted as it is now."""
    was_shed: bool = False
    """Whether it lost traffic for its health, and has not got any more since."""
    healthy_since: datetime | None = None

    @property
    def excess(self) -> int:
        """Return the percent of the traffic that it gets and cannot carry."""
        return max(0, self.weight - self.sustainable)


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade at one moment."""

    direction: Direction
    active: Side
    pending: Side
    standing: Standing = Standing.PROVEN
    distrust: str = ""
    """Why the pending cluster is not proven."""
    pause: str | None = None
    """Why the way forward is closed; guards and the way back stay open."""
    gateway_problem: str | None = None
    """Why the Gateway takes no requests."""
    route_problem: str | None = None
    """Why the Gateway does not follow the route as it is now."""
    lag: str | None = None
    """Why a Gateway may still follow an earlier generation of the route."""
    changed_at: datetime | None = None
    is_mirrored: bool = True
    """Whether the status shows the last change already."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides should have from now on, and why."""

    active: int
    pending: int
    note: str
    requeue_at: datetime | None = None
    """When time alone allows the next change."""


def is_hurried(m: Migration, policy: Policy) -> bool:
    """Return whether a rollback skips interval and surge bound: the other cluster is unhealthy, or the options allow no step."""
    return m.direction is Direction.BACK and (not m.pending.is_alive or not policy.may_progress)


def is_late(m: Migration, *, now: datetime) -> bool:
    """Return whether nothing has changed for `LATE`, so that the expected change will not come."""
    return m.changed_at is None or now >= m.changed_at + LATE
