"""Rules on the upgrade strategy and on the status (spec raycluster §4.5, §4.6)."""

from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits


def upgrade_type_unknown(cluster: RayCluster) -> str | None:
    """Refuse all but Recreate and None."""
    kind = _upgrade_type(cluster)
    if kind in {None, "Recreate", "None"}:
        return None
    return (
        f"The RayCluster spec is invalid: Spec.UpgradeStrategy.Type value {kind} is invalid, "
        "valid options are Recreate or None"
    )


def upgrade_type_on_a_child(cluster: RayCluster) -> str | None:
    """Refuse to override a RayJob or RayService, which upgrades its cluster itself."""
    creator = traits.creator_kind(cluster)
    if _upgrade_type(cluster) is None or creator == "RayCluster":
        return None
    return f"upgradeStrategy cannot be set when RayCluster is created by {creator}"


def suspending_and_suspended(cluster: RayCluster) -> str | None:
    """Refuse both conditions at once: the second follows the first."""
    true = {condition.type for condition in cluster.status.conditions if condition.status == "True"}
    if not {"RayClusterSuspending", "RayClusterSuspended"} <= true:
        return None
    return (
        "invalid RayCluster State: rayv1.RayClusterSuspending and rayv1.RayClusterSuspended conditions "
        "should not be both true"
    )


def _upgrade_type(cluster: RayCluster) -> str | None:
    strategy = cluster.spec.upgrade_strategy
    return strategy.type if strategy else None
