"""The five counters. They count pods, in spite of their names (spec raycluster §13.2; acceptance case 52)."""

import msgspec

from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import groups
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.ray import cluster_traits as traits


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """How many worker pods there are and should be."""

    ready: int
    available: int
    desired: int
    least: int
    most: int


def desired(cluster: RayCluster) -> int:
    """Return how many worker pods there should be."""
    return sum(groups.target(group) for group in _active(cluster))


def least(cluster: RayCluster) -> int:
    """Return how many worker pods there are when the autoscaler has taken all that it may."""
    return sum((group.min_replicas or 0) * groups.hosts(group) for group in _active(cluster))


def count(observed: Observed) -> Counters:
    """Count the worker pods."""
    active = _active(observed.cluster)
    most = sum(
        (groups.UNBOUNDED if group.max_replicas is None else group.max_replicas) * groups.hosts(group)
        for group in active
    )
    return Counters(
        ready=sum(pod.is_running_and_ready for pod in observed.workers),
        available=sum(pod.status.phase == "Running" for pod in observed.workers),
        desired=desired(observed.cluster),
        least=least(observed.cluster),
        most=min(most, groups.UNBOUNDED),
    )


def _active(cluster: RayCluster) -> list[WorkerGroupSpec]:
    return [group for group in traits.worker_groups(cluster) if not group.suspend]
