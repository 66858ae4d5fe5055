"""When clusters that nobody needs are deleted.

The deadline stands on the cluster, so a restart does not forget it. It counts from the first look after promotion, with the
slack that KubeRay has (spec rayservice §16; acceptance 29, 30).
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import names, traffic_record
from common.api.meta import rfc3339, whole_seconds
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from service_reconciler.config import DEFAULT_DELETION_DELAY, DELETION_SLACK
from service_reconciler.observed import Observed
from service_reconciler.resources.ray_cluster import DELETE_AFTER

RECHECK: Final = timedelta(seconds=1)
ROUNDED_UP: Final = timedelta(microseconds=999_999)
"""Times are written in whole seconds, and the slack must not be lost to that."""


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about unneeded clusters now."""

    mark: tuple[tuple[RayCluster, str], ...] = ()
    """Clusters that get a deadline."""
    delete: tuple[RayCluster, ...] = ()
    look_again_at: datetime | None = None


def decide(observed: Observed, *, now: datetime) -> Cleanup:
    """Give each unneeded cluster a deadline, and delete those whose deadline has passed."""
    mark: list[tuple[RayCluster, str]] = []
    delete: list[RayCluster] = []
    later: list[datetime] = []
    delay = delay_of(observed.service)
    for cluster in observed.unneeded:
        if cluster.metadata.deletion_timestamp is not None:
            continue
        due = due_at(cluster)
        if due is None:
            due = whole_seconds(now + delay + ROUNDED_UP)
            mark.append((cluster, rfc3339(due)))
            later.append(due)
        elif due <= now and _gets_requests(observed, cluster):
            later.append(now + RECHECK)
        elif due <= now:
            delete.append(cluster)
        else:
            later.append(due)
    return Cleanup(mark=tuple(mark), delete=tuple(delete), look_again_at=min(later, default=None))


def _gets_requests(observed: Observed, cluster: RayCluster) -> bool:
    """Tell whether a route still sends requests to a cluster; traffic-manager will take it out."""
    return traffic_record.weight_of(observed.route, names.serve_service(cluster.metadata.name)) > 0


def delay_of(service: RayService) -> timedelta:
    """Return how long an unneeded cluster lives on."""
    given = service.raw_spec.get("rayClusterDeletionDelaySeconds")  # raw: an odd spec must not keep clusters alive
    seconds = given if isinstance(given, int) and given >= 0 else DEFAULT_DELETION_DELAY
    return timedelta(seconds=seconds + DELETION_SLACK)


def due_at(cluster: RayCluster) -> datetime | None:
    """Return the deadline on a cluster, None when it has none that can be read."""
    text = cluster.metadata.annotations.get(DELETE_AFTER)
    try:
        due = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return due if due is not None and due.tzinfo is not None else None
