"""The largest `maxSurgePercent` of an upgrade in steps that the ResourceQuotas of the namespace have room for: pure.

The pods of the clusters are what the services make of the manifests, so a percentage counts as the whole pods that it is rounded
up to. Whether the nodes have room is not known here.
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
    """The largest surge that fits."""

    percent: int | None
    """The largest `maxSurgePercent`; None when no surge of 1 percent or more fits."""
    limits: list[QuotaCheck] = []
    """The quotas that one percent more would exceed; none where no quota limits the surge."""


def find_surge(
    old: RayCluster,
    new: RayCluster,
    quotas: tuple[Quota, ...],
    *,
    sizes: Mapping[str, int],
    unavailable: int,
) -> Surge:
    """Return the largest surge with a peak that every quota admits beside what is used now.

    `sizes` are the replicas by group where Ray's autoscaler decides on them, `unavailable` is the percentage of capacity that may
    be missing.
    """
    now, limits = demand.of(old), list[QuotaCheck]()
    for percent in range(WHOLE, 0, -1):
        # The capacities of a round follow the surge, so the largest steps have the same peak.
        policy = Policy(
            surge=percent, step=percent, interval=timedelta(seconds=1), unavailable=unavailable
        )
        peak = demand.in_steps(old, new, steps.simulate(policy), sizes)
        exceeded = [each for each in demand.judge(quotas, now, peak.expected) if not each.is_enough]
        if not exceeded:
            return Surge(percent=percent, limits=limits)
        limits = exceeded
    return Surge(percent=None, limits=limits)
