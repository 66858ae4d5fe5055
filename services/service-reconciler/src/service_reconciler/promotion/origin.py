"""Which upgrade a cluster that nobody needs any more belonged to, and how that went.

A cluster says itself which one it was made to replace (`raybus.io/upgrade-from`), until its upgrade is over; where none of both
says anything, as KubeRay's do not, their ages tell.
"""

import msgspec

from common import labels
from common.api.ray_cluster import RayCluster


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade between two clusters, one of which is the active one now."""

    old: RayCluster
    new: RayCluster
    is_promoted: bool


def of(active: RayCluster, left: RayCluster) -> Origin | None:
    """Return the upgrade that left a cluster behind, None when there was none between these two."""
    if from_of(left) == active.metadata.name:
        return Origin(old=active, new=left, is_promoted=False)
    if from_of(active) == left.metadata.name:
        return Origin(old=left, new=active, is_promoted=True)
    born, born_before = active.metadata.creation_timestamp, left.metadata.creation_timestamp
    if from_of(active) or from_of(left) or born is None or born_before is None:
        return None
    if born_before <= born:
        return Origin(old=left, new=active, is_promoted=True)
    return Origin(old=active, new=left, is_promoted=False)


def from_of(cluster: RayCluster) -> str:
    """Return the cluster that this one was made to replace; empty when there was none, or its upgrade is over."""
    return cluster.metadata.annotations.get(labels.UPGRADE_FROM, "")
