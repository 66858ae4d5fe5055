"""The phase of an upgrade, as one term, from durable state."""

from collections.abc import Iterable
from enum import StrEnum

from common import labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.upgrade.traffic_record import Record
from service_reconciler import decided


class Phase(StrEnum):
    """The phases, in their usual order."""

    IDLE = "Idle"
    STARTING = "Starting"
    """The first cluster is on its way."""
    PREPARING = "Preparing"
    """No request has moved yet."""
    SHIFTING = "Shifting"
    ROLLING_BACK = "RollingBack"
    DRAINING = "Draining"
    """All requests are where they stay; the other cluster has not gone yet."""


def of(service: RayService, record: Record, clusters: Iterable[RayCluster]) -> Phase:
    """Return the phase of a RayService; `clusters` are all that carry its labels."""
    active = service.status.active_service_status.ray_cluster_name
    pending = service.status.pending_service_status.ray_cluster_name
    if decided.is_rolling_back(service):
        return Phase.ROLLING_BACK
    if pending:
        share = record.clusters.get(pending)
        moved = Phase.SHIFTING if share is not None and share.weight else Phase.PREPARING
        return moved if active else Phase.STARTING
    drains = any(
        each.metadata.name != active
        and each.metadata.deletion_timestamp is None
        and labels.DELETE_AFTER in each.metadata.annotations
        for each in clusters
    )
    return Phase.DRAINING if drains else Phase.IDLE
