"""Find why a RayCluster is not reconciled: another manager, a broken rule, a size limit.

An Event reports the violation. An invalid name is also reported in a condition, because no Event
can be created for a name longer than 236 characters. Nothing is retried until the object changes,
except for a status that contradicts itself (spec raycluster §6 steps 2-9; acceptance cases 2,
5-18).
"""

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import EMPTY_PLAN, ClusterPlan, make_step
from cluster_reconciler.config import Config
from cluster_reconciler.reasons import Failure, ReplicaFailure
from common import labels
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits
from common.runtime.actions import Action, EmitEvent, Refuse
from common.validation import ray_cluster as cluster_rules


def find_violation_plan(cluster: RayCluster, config: Config) -> ClusterPlan | None:
    """Return the plan that reports why a cluster is not reconciled; None if it is reconciled."""
    if get_foreign_manager(cluster):
        return EMPTY_PLAN
    if problem := cluster_rules.metadata(cluster):
        event = events.INVALID_METADATA.about(cluster, what="metadata", problem=problem)
        return _report(
            EmitEvent(event=event), failure=Failure(ReplicaFailure.INVALID_METADATA, problem)
        )
    if (part_and_problem := find_violation(cluster, config)) is not None:
        part, problem = part_and_problem
        return _report(
            EmitEvent(event=events.INVALID_SPEC.about(cluster, what=part, problem=problem))
        )
    if problem := cluster_rules.status(cluster):  # A retry may help without a change of the object.
        return _report(Refuse(event=events.INVALID_STATUS.about(cluster, problem=problem)))
    return None


def get_foreign_manager(cluster: RayCluster) -> str:
    """Return the controller in `spec.managedBy`; empty if raybus manages the cluster."""
    named = cluster.intent.managed_by or ""
    return "" if named == labels.MANAGED_BY_US else named


def find_violation(cluster: RayCluster, config: Config) -> tuple[str, str] | None:
    """Return which part of the spec breaks a rule, and how; None if the spec is valid."""
    try:
        if (problem := cluster_rules.spec(cluster, config.gates)) is not None:
            return "spec", problem
    except msgspec.ValidationError as error:
        return "spec", f"{error}; correct the field"
    if problem := cluster_rules.upgrade_options(cluster):
        return "UpgradeStrategy", problem
    return None


def _report(*actions: Action, failure: Failure | None = None) -> ClusterPlan:
    return ClusterPlan(
        actions=make_step(*actions),
        refusal=failure,
        writes_status=failure is not None,
        is_periodic=False,
    )


def find_exceeded_limit(cluster: RayCluster, config: Config) -> str | None:
    """Return a message about the limit that the spec exceeds, with a remedy; None if within limits.

    The limits keep a large cluster from delaying other clusters.
    """
    members = traits.worker_groups(cluster)
    pods = sum(max(0, traits.target(group)) for group in members)
    groups = f"spec.workerGroupSpecs has {len(members)} groups"
    limits = [
        (len(members), config.max_groups, groups, "(RAYBUS_MAX_GROUPS_PER_CLUSTER): remove groups")
    ]
    for group in traits.active_groups(cluster):
        hosts = f"workerGroupSpecs group {group.group_name} has numOfHosts {group.num_of_hosts}"
        limits.append(
            (
                traits.hosts(group),
                config.max_hosts,
                hosts,
                "(RAYBUS_MAX_HOSTS_PER_REPLICA): lower it",
            )
        )
    remedy = "(RAYBUS_MAX_PODS_PER_CLUSTER): lower replicas or numOfHosts"
    limits.append(
        (pods, config.max_pods, f"spec.workerGroupSpecs asks for {pods} worker pods", remedy)
    )
    for actual, limit, description, remedy in limits:
        if actual > limit:
            return f"{description}, more than {limit} {remedy}, or have the limit raised"
    return None
