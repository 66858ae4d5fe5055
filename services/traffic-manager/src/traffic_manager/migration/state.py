"""What the decisions about weights and capacities are made from."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

LATE: Final = timedelta(seconds=10)
"""How long a rollback waits for a Gateway to follow, and an upgrade for room, before it goes another way."""


class Direction(StrEnum):
    """Where the traffic goes."""

    FORWARD = "forward"
    """To the pending cluster."""
    BACK = "back"
    """To the active cluster: the upgrade is being rolled back."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's `clusterUpgradeOptions`."""

    surge: int = 100
    """Percent of capacity that both clusters may have beyond 100."""
    step: int = 100
    """Percent of the traffic that moves at once."""
    interval: timedelta = timedelta(seconds=1)
    """The shortest time between two moves of traffic."""
    unavailable: int = 0
    """Percent of capacity that may be missing below 100 while both clusters share what room there is."""

    @property
    def may_progress(self) -> bool:
        """Tell whether these options let an upgrade go on at all."""
        return self.step > 0 and (self.surge > 0 or self.unavailable > 0)

    @property
    def floor(self) -> int:
        """Return the least capacity, in percent, that both have together."""
        return 100 - self.unavailable


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two clusters."""

    capacity: int
    """`target_capacity` that Serve has accepted."""
    weight: int
    """Its share of the traffic."""
    moved_at: datetime | None = None
    """When that last changed."""
    proof: int = 0
    """The percent of the traffic that it was *seen* to be able to carry (design rule 8)."""
    doubt: str = ""
    """Why that is not all of its capacity."""
    reported: float | None = None
    """The target capacity that Serve says it runs with, None when nobody answers."""
    is_alive: bool = True
    """Whether it can be hoped to serve what it has been given."""
    is_sick: bool = False
    """Whether it has not been alive for so long that waiting costs more than going back."""


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade at one moment."""

    direction: Direction
    active: Side
    pending: Side
    pause: str | None = None
    """Why the way forward is closed; guards and the way back stay open."""
    gateway_problem: str | None = None
    """Why the Gateway takes no requests."""
    route_problem: str | None = None
    """Why the Gateway does not follow the route as it is now."""
    changed_at: datetime | None = None
    """When a weight or a capacity last changed."""
    is_mirrored: bool = True
    """Whether the status shows the last change already."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides should have from now on, and why."""

    active: int
    pending: int
    note: str
    look_again_at: datetime | None = None
    """When time alone allows the next change."""


def is_hurried(m: Migration, policy: Policy) -> bool:
    """Tell whether a rollback skips interval and surge bound: the other cluster is sick, or the options allow no step."""
    return m.direction is Direction.BACK and (not m.pending.is_alive or not policy.may_progress)


def is_late(m: Migration, *, now: datetime) -> bool:
    """Tell whether nothing has changed for so long that what was hoped for will not come."""
    return m.changed_at is None or now >= m.changed_at + LATE
