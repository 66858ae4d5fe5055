"""The five counters. They count pods, in spite of their names (spec raycluster §13.2; acceptance case 52)."""

import msgspec

from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import groups
from common import ray_cluster_traits as traits


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """How many worker pods there are and should be."""

    ready: int
    available: int
    desired: int
    least: int
    most: int


def count(observed: Observed) -> Counters:
    """Count the worker pods."""
    active = [group for group in traits.worker_groups(observed.cluster) if not group.suspend]
    most = sum(
        (groups.UNBOUNDED if group.max_replicas is None else group.max_replicas) * groups.hosts(group)
        for group in active
    )
    return Counters(
        ready=sum(pod.is_running_and_ready for pod in observed.workers),
        available=sum(pod.status.phase == "Running" for pod in observed.workers),
        desired=sum(groups.target(group) for group in active),
        least=sum((group.min_replicas or 0) * groups.hosts(group) for group in active),
        most=min(most, groups.UNBOUNDED),
    )
