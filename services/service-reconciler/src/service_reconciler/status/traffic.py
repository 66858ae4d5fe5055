"""The mirror of the traffic record in the status: `targetCapacity`, `trafficRoutedPercent`, `lastTrafficMigratedTime` (ADR 1).

Where traffic does not move in steps these fields are absent; that is also how an upgrade in steps is known from any other.
"""

import msgspec

from common.api.meta import whole_seconds
from common.api.ray_service import ClusterServiceStatus
from common.upgrade.traffic_record import WHOLE, Share
from service_reconciler.observed import Names, Observed


def mirrored(observed: Observed, cluster: ClusterServiceStatus, wanted: Names) -> ClusterServiceStatus:
    """Return one cluster's status with its part of the traffic."""
    name = cluster.ray_cluster_name
    if not name or not observed.is_incremental:
        return cluster
    share = observed.record.clusters.get(name)
    if share is None:
        has_other = name == wanted.pending and observed.active is not None
        return msgspec.structs.replace(cluster, target_capacity=0 if has_other else WHOLE)
    return msgspec.structs.replace(
        cluster,
        target_capacity=share.capacity,
        traffic_routed_percent=_weight(observed, share, name),
        last_traffic_migrated_time=None if share.moved_at is None else whole_seconds(share.moved_at),
    )


def _weight(observed: Observed, share: Share, name: str) -> int | None:
    """Return the weight; a cluster that was on no route yet has none."""
    held = (observed.service.status.active_service_status, observed.service.status.pending_service_status)
    known = any(each.ray_cluster_name == name and each.traffic_routed_percent is not None for each in held)
    return share.weight if known or share.moved_at is not None else None
