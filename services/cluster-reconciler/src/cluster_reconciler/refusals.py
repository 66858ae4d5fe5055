"""Why nothing is done for a RayCluster: another controller's, or a spec that breaks a rule; and the limits on its size.

An Event reports the violation; for a wrong name a condition does too, since no Event about a name of more than 236 characters can be named;
nothing is retried until the object changes, but for a status that contradicts itself (spec raycluster §6 steps 2-9; acceptance cases 2, 5-18).
"""

import msgspec

from cluster_reconciler import events
from cluster_reconciler.config import Config
from cluster_reconciler.pods import workers
from cluster_reconciler.reasons import Failure, ReplicaFailure
from cluster_reconciler.status import compute
from common import labels
from common.api.event import Event
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits
from common.validation import ray_cluster as cluster_rules


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The Event of a refusal, if any, whether a retry may help without a change, and what the status reports of it."""

    event: Event | None
    is_retried: bool = False
    failure: Failure | None = None


def find(cluster: RayCluster, config: Config) -> Refusal | None:
    """Return the first reason to do nothing."""
    try:
        managed_by = cluster.spec.managed_by or ""
    except msgspec.ValidationError:
        managed_by = ""  # the rules on the spec report what is wrong
    if managed_by not in {"", labels.MANAGED_BY_US}:
        return Refusal(event=None)
    if problem := cluster_rules.metadata(cluster):
        event = events.INVALID_METADATA.about(cluster, what="metadata", problem=problem)
        return Refusal(event=event, failure=Failure(ReplicaFailure.INVALID_METADATA, problem))
    try:
        problem, unsupported = cluster_rules.spec(cluster, config.gates), ""
    except msgspec.ValidationError as fault:
        problem, unsupported = f"{fault}; correct the field", ""
    if problem is None and not config.has_cert_manager and cluster_rules.missing_protection(cluster):
        problem, unsupported = cluster_rules.NO_CERT_MANAGER, cluster_rules.unsupported(cluster)
    if problem is not None:
        failure = Failure(ReplicaFailure.UNSUPPORTED, unsupported) if unsupported else None
        return Refusal(event=events.INVALID_SPEC.about(cluster, what="spec", problem=problem), failure=failure)
    if problem := cluster_rules.upgrade_options(cluster):
        return Refusal(event=events.INVALID_SPEC.about(cluster, what="UpgradeStrategy", problem=problem))
    if problem := cluster_rules.status(cluster):
        return Refusal(event=events.INVALID_STATUS.about(cluster, problem=problem), is_retried=True)
    return None


def exceeded_limit(cluster: RayCluster, config: Config) -> str | None:
    """Return which limit the spec exceeds, with the value found, the limit, and the remedy; a large object delays no other."""
    members = traits.worker_groups(cluster)
    if len(members) > config.max_groups:
        return (
            f"spec.workerGroupSpecs has {len(members)} groups, more than {config.max_groups} "
            "(RAYBUS_MAX_GROUPS_PER_CLUSTER): remove groups, or have the limit raised"
        )
    for group in members:
        if not group.suspend and workers.hosts(group) > config.max_hosts:
            return (
                f"workerGroupSpecs group {group.group_name} has numOfHosts {group.num_of_hosts}, more than {config.max_hosts} "
                "(RAYBUS_MAX_HOSTS_PER_REPLICA): lower it, or have the limit raised"
            )
    if (pods := compute.desired_workers(cluster)) > config.max_pods:
        return (
            f"spec.workerGroupSpecs asks for {pods} worker pods, more than {config.max_pods} "
            "(RAYBUS_MAX_PODS_PER_CLUSTER): lower replicas or numOfHosts, or have the limit raised"
        )
    return None
