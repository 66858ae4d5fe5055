"""What a changed cluster spec does to a RayCluster without a RayService, and when a change would do nothing."""

from collections.abc import Sequence
from typing import Final

from common import errors, labels
from common.api import ray_service
from common.api.ray_cluster import KIND, RayCluster
from common.kube.resources import RAY_CLUSTER
from common.ray import cluster_traits
from raybus_cli.changing.edits import Edit
from raybus_cli.manifests.reading import path
from raybus_cli.planning.differences import Difference, Effect
from raybus_cli.planning.plan import Plan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading.kinds import Target

RECREATE: Final = "Recreate"


def expect_recreated(cluster: RayCluster) -> None:
    """Raise `Rejected` for a RayCluster that gets no new pods when its spec changes."""
    name, held = cluster.metadata.name, cluster.metadata.labels
    if cluster_traits.is_for_a_service(cluster):
        owner = held.get(labels.ORIGIN_NAME, "")
        raise errors.Rejected(
            f"RayCluster {name} belongs to RayService {owner}, which makes its clusters: name that one, {ray_service.KIND.lower()}/{owner}"
        )
    kind = cluster_traits.creator_kind(cluster)
    if kind != KIND:
        raise errors.Rejected(
            f"RayCluster {name} belongs to {kind} {held.get(labels.ORIGIN_NAME, '')}: change that one"
        )
    manager = cluster.raw_spec.get("managedBy") or labels.MANAGED_BY_US
    if manager != labels.MANAGED_BY_US:
        raise errors.Rejected(
            f"spec.managedBy of RayCluster {name} is {manager}, so raybus does not manage it; use that controller"
        )
    strategy = cluster.spec.upgrade_strategy
    if strategy is None or strategy.type != RECREATE:
        found = "not set" if strategy is None or strategy.type is None else strategy.type
        raise errors.Rejected(
            f"spec.upgradeStrategy.type of RayCluster {name} is {found}, so its pods stay as they are when the spec changes; set it to "
            f"{RECREATE}, or delete the pods yourself: kubectl delete pod -l {labels.CLUSTER}={name}"
        )


def of_cluster(cluster: RayCluster, edits: Sequence[Edit]) -> Plan:
    """Return the effect of some edits on a RayCluster that is recreated."""
    meta, is_suspended = cluster.metadata, cluster.raw_spec.get("suspend") is True
    return Plan(
        kind=KIND,
        namespace=meta.namespace,
        name=meta.name,
        outcome=PlanOutcome.NOTHING if is_suspended else PlanOutcome.RECREATED,
        notes=[
            "the cluster is suspended"
            if is_suspended
            else "all pods are deleted, then created again; until then nothing is served"
        ],
        differences=[
            Difference(
                field=path(("spec", *each.place)),
                effect=Effect.NOTHING if is_suspended else Effect.NEW_PODS,
                old=each.old or "-",
                new=each.new,
            )
            for each in edits
        ],
    )


def check(plan: Plan, target: Target, *, must_restart: bool) -> None:
    """Raise `Rejected` for a plan that is not to be executed: a spec that is refused, or a restart that restarts nothing."""
    why = "; ".join(plan.notes)
    if plan.outcome is PlanOutcome.REFUSED:
        raise errors.Rejected("the spec would be rejected; nothing is changed")
    if not must_restart or plan.outcome is not PlanOutcome.NOTHING:
        return
    remedy = "" if target.resource is RAY_CLUSTER else f"; see 'raybus explain {target.name}'"
    raise errors.Rejected(f"a restart would make no new pod now ({why}){remedy}; nothing is changed")
