"""Limits on the size of one RayCluster, so that a large object delays no other.

A cluster within its limits is still planned in batches of `BATCH` pods, so that its size delays only itself. The table of all
limits is in docs/reference/limits.md.
"""

from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.pods import groups
from cluster_reconciler.status import counters
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits

BATCH: Final = 200
"""Worker pods that one plan creates and deletes; a replica of several hosts is never split."""


def exceeded(cluster: RayCluster, config: Config) -> str | None:
    """Return which limit the spec exceeds, with the value found, the limit, and the remedy."""
    members = traits.worker_groups(cluster)
    if len(members) > config.max_groups:
        return (
            f"spec.workerGroupSpecs has {len(members)} groups, more than {config.max_groups} "
            "(RAYBUS_MAX_GROUPS_PER_CLUSTER): remove groups, or have the limit raised"
        )
    for group in members:
        if not group.suspend and groups.hosts(group) > config.max_hosts:
            return (
                f"workerGroupSpecs group {group.group_name} has numOfHosts {group.num_of_hosts}, more than {config.max_hosts} "
                "(RAYBUS_MAX_HOSTS_PER_REPLICA): lower it, or have the limit raised"
            )
    pods = counters.desired(cluster)
    if pods > config.max_pods:
        return (
            f"spec.workerGroupSpecs asks for {pods} worker pods, more than {config.max_pods} "
            "(RAYBUS_MAX_PODS_PER_CLUSTER): lower replicas or numOfHosts, or have the limit raised"
        )
    return None
