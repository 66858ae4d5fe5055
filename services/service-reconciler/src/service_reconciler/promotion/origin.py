"""The upgrade that an unneeded cluster belonged to, and its outcome.

A cluster has the name of its predecessor (`raybus.io/upgrade-from`) until its upgrade is over; where neither has it, as
KubeRay's do not, their ages decide.
"""

import msgspec

from common import labels
from common.api.ray_cluster import RayCluster
from service_reconciler.observed import Names


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade between two clusters, one of which is the active one now."""

    pair: Names
    """The old cluster as the active one, and the new one as pending."""
    is_promoted: bool


def of(names: Names, active: RayCluster | None, left: RayCluster) -> Origin | None:
    """Return the upgrade that left a cluster behind, None when there was none with the active one, which may be gone."""
    name = left.metadata.name
    is_aborted = Origin(pair=Names(active=names.active, pending=name), is_promoted=False)
    is_replaced = Origin(pair=Names(active=name, pending=names.active), is_promoted=True)
    if not names.active:
        return None
    if from_of(left) == names.active:
        return is_aborted
    if active is None or from_of(active) == name:
        return is_replaced
    born, born_before = active.metadata.creation_timestamp, left.metadata.creation_timestamp
    if from_of(active) or from_of(left) or born is None or born_before is None:
        return None
    return is_replaced if born_before <= born else is_aborted


def from_of(cluster: RayCluster) -> str:
    """Return the cluster that this one was made to replace; empty when there was none, or its upgrade is over."""
    return cluster.metadata.annotations.get(labels.UPGRADE_FROM, "")
