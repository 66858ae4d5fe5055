"""The steps of traffic-manager: what its record shows and the status does not show yet.

It takes the next step only when the status shows the last one (ADR 6), so each of them is observed here once, and published before the
status is written.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from common.api.ray_service import ClusterServiceStatus, RayServiceStatus
from common.upgrade.events import CapacityChanged, Direction, Event, Share, Split, TrafficShifted
from common.upgrade.traffic_record import WHOLE
from service_reconciler import decided
from service_reconciler.observed import Names, Observed
from service_reconciler.status import traffic
from service_reconciler.upgrade_events import build


def unpublished(observed: Observed, *, now: datetime) -> Iterator[Event]:
    """Yield what has changed in an upgrade in steps since the status was written; weights come first, as they are moved."""
    status, names = observed.service.status, observed.names
    if not (observed.is_incremental and names.active and names.pending) or _names(status) != names:
        return
    before, after = _split(status.active_service_status, status.pending_service_status), _recorded(observed)
    between = Split(old=_share(before.old, after.old), new=_share(before.new, after.new))
    is_back = decided.is_rolling_back(observed.service)
    direction = Direction.BACK if is_back else Direction.FORWARD
    upgrade, changed_at = build.upgrade(observed, names), observed.record.changed_at
    for kind, was, now_is in ((TrafficShifted, before, between), (CapacityChanged, between, after)):
        if was != now_is:
            data = kind(upgrade=upgrade, direction=direction, before=was, after=now_is)
            yield build.event(observed, data, changed_at, now_is, at=changed_at or now)


def _names(status: RayServiceStatus) -> Names:
    held = (status.active_service_status, status.pending_service_status)
    return Names(active=held[0].ray_cluster_name, pending=held[1].ray_cluster_name)


def _recorded(observed: Observed) -> Split:
    names = observed.names
    old, new = (
        traffic.mirrored(observed, ClusterServiceStatus(ray_cluster_name=each), names)
        for each in (names.active, names.pending)
    )
    return _split(old, new)


def _split(old: ClusterServiceStatus, new: ClusterServiceStatus) -> Split:
    """Return the parts that a status shows; at the beginning the old cluster has everything."""
    weight = new.traffic_routed_percent or 0
    rest = WHOLE - weight if old.traffic_routed_percent is None else old.traffic_routed_percent
    return Split(
        old=Share(capacity_percent=WHOLE if old.target_capacity is None else old.target_capacity, traffic_percent=rest),
        new=Share(capacity_percent=new.target_capacity or 0, traffic_percent=weight),
    )


def _share(capacity: Share, traffic_of: Share) -> Share:
    return msgspec.structs.replace(capacity, traffic_percent=traffic_of.traffic_percent)
