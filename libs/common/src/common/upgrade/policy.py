"""How fast an upgrade in steps may move: `clusterUpgradeOptions`, and the annotation `raybus.io/max-unavailable-percent`."""

from datetime import timedelta

import msgspec

from common.api.opaque import Json
from common.upgrade import controls


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
        """Return whether these options let an upgrade go on at all."""
        return self.step > 0 and (self.surge > 0 or self.unavailable > 0)

    @property
    def floor(self) -> int:
        """Return the least capacity, in percent, that both have together."""
        return 100 - self.unavailable

    def needed(self, weight: int) -> int:
        """Return the least capacity for a weight: the allowance is one of the sum, shared in proportion to traffic."""
        return max(min(weight, 1), weight * self.floor // 100)

    def carried(self, capacity: int) -> int:
        """Return the most traffic on a capacity of which the allowance may be missing."""
        return min(100, capacity * 100 // self.floor)


def of(options: Json, *, unavailable: int) -> Policy | None:
    """Return what `clusterUpgradeOptions` ask for; None where step or interval is missing, or is no number."""
    surge, step = options.get("maxSurgePercent"), options.get("stepSizePercent")
    interval = controls.interval(options)
    if not isinstance(step, int) or interval is None:
        return None
    surge = surge if isinstance(surge, int) else 100
    found = Policy(surge=surge, step=step, interval=interval, unavailable=unavailable)
    if step > 0 or surge > 0:
        return found
    return msgspec.structs.replace(found, step=found.carried(unavailable))  # KubeRay takes no step beyond the surge
