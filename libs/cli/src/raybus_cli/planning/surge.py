"""Finds the largest `maxSurgePercent` that fits into the ResourceQuotas of the namespace.

Does no I/O. Percentages are rounded up to whole pods, as the services do. Whether the nodes have
room is not considered.
"""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from common.api.ray_cluster import RayCluster
from common.upgrade.controls import Policy
from common.upgrade.traffic_record import WHOLE
from raybus_cli.planning import demand, steps
from raybus_cli.planning.demand import QuotaCheck
from raybus_cli.reading.snapshot import Quota


class Surge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The largest surge that fits into the ResourceQuotas."""

    percent: int | None
    """The largest `maxSurgePercent`; None if not even 1 percent fits."""
    limits: list[QuotaCheck] = []
    """The quotas that one percent more would exceed; empty if no quota limits the surge."""


def find_surge(
    old: RayCluster,
    new: RayCluster,
    quotas: tuple[Quota, ...],
    *,
    sizes: Mapping[str, int],
    unavailable: int,
) -> Surge:
    """Return the largest surge at which the requests of the upgrade never exceed a quota.

    `sizes` maps groups to replicas if Ray's autoscaler decides on them. `unavailable` is the
    percentage of capacity that may be missing.
    """
    now, limits = demand.compute_demand(old), list[QuotaCheck]()
    for percent in range(WHOLE, 0, -1):
        # A step as large as the surge needs as much as smaller steps, because the surge
        # limits the capacities at any time.
        policy = Policy(
            surge=percent, step=percent, interval=timedelta(seconds=1), unavailable=unavailable
        )
        peak = demand.compute_peak_in_steps(old, new, steps.simulate(policy), sizes)
        exceeded = [
            check for check in demand.judge(quotas, now, peak.expected) if not check.is_enough
        ]
        if not exceeded:
            return Surge(percent=percent, limits=limits)
        limits = exceeded
    return Surge(percent=None, limits=limits)
