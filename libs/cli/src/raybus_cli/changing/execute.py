"""Reads an object, plans a change and applies it by a JSON patch.

If the spec changes before the patch, the object is read and planned again. The effects on a
RayCluster without a RayService are planned here, because `raybus plan` covers RayServices only.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from common import errors, labels
from common.api import ray_service
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import KIND, RayCluster
from common.feature_gates import BETA
from common.kube.client import JSON_PATCH, KubeClient, PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from common.ray import cluster_traits
from raybus_cli import session
from raybus_cli.changing import edits as changes
from raybus_cli.changing.edits import FieldEdit
from raybus_cli.control import actions
from raybus_cli.manifests import FieldPath, format_path
from raybus_cli.planning import plan as plans
from raybus_cli.planning.differences import CONFIG, Effect, SpecDifference
from raybus_cli.planning.plan import Sizing, UpgradePlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading import reader
from raybus_cli.reading.kinds import NamedTarget

RECREATE: Final = "Recreate"


def check_is_recreated(cluster: RayCluster) -> None:
    """Raise `Rejected` unless raybus recreates the RayCluster's pods when a user edits its spec."""
    name, own_labels = cluster.metadata.name, cluster.metadata.labels
    if cluster_traits.is_for_a_service(cluster):
        owner = own_labels.get(labels.ORIGIN_NAME, "")
        raise errors.Rejected(
            f"RayCluster {name} belongs to RayService {owner}, which makes its clusters: name "
            f"that one, {ray_service.KIND.lower()}/{owner}"
        )
    kind = cluster_traits.creator_kind(cluster)
    if kind != KIND:
        raise errors.Rejected(
            f"RayCluster {name} belongs to {kind} {own_labels.get(labels.ORIGIN_NAME, '')}: change "
            "that one"
        )
    manager = cluster.raw_spec.get("managedBy") or labels.MANAGED_BY_US
    if manager != labels.MANAGED_BY_US:
        raise errors.Rejected(
            f"spec.managedBy of RayCluster {name} is {manager}, so raybus does not manage it; "
            "use that controller"
        )
    strategy = cluster.spec.upgrade_strategy
    if strategy is None or strategy.type != RECREATE:
        current = "not set" if strategy is None or strategy.type is None else strategy.type
        raise errors.Rejected(
            f"spec.upgradeStrategy.type of RayCluster {name} is {current}, so its pods stay as "
            "they are when the spec changes; set it to "
            f"{RECREATE}, or delete the pods yourself: kubectl delete pod -l "
            f"{labels.CLUSTER}={name}"
        )


def plan_cluster(cluster: RayCluster, edits: Sequence[FieldEdit]) -> UpgradePlan:
    """Plan the effect of edits on a RayCluster with upgradeStrategy Recreate."""
    meta, is_suspended = cluster.metadata, cluster.raw_spec.get("suspend") is True
    return UpgradePlan(
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
            SpecDifference(
                field=format_path(("spec", *edit.path)),
                effect=Effect.NOTHING if is_suspended else Effect.NEW_PODS,
                old=edit.old or "-",
                new=edit.new,
            )
            for edit in edits
        ],
    )


def check(plan: UpgradePlan, target: NamedTarget, *, must_restart: bool) -> None:
    """Raise `Rejected` if the API server would refuse the spec.

    With `must_restart`, also if the change would create no new pods.
    """
    why = "; ".join(plan.notes)
    if plan.outcome is PlanOutcome.REFUSED:
        raise errors.Rejected("the spec would be rejected; nothing is changed")
    if not must_restart or plan.outcome is not PlanOutcome.NOTHING:
        return
    remedy = "" if target.resource is RAY_CLUSTER else f"; see 'raybus explain {target.name}'"
    raise errors.Rejected(
        f"a restart would make no new pod now ({why}){remedy}; nothing is changed"
    )


ATTEMPTS: Final = 5

Decide = Callable[[Json], Sequence[FieldEdit]]
"""Function that computes the edits from a cluster spec."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a user requested; `decide` computes its edits.

    With `must_restart`, a change that would create no new pod is rejected.
    """

    target: NamedTarget
    decide: Decide
    must_restart: bool = False
    is_dry_run: bool = False


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    plan: UpgradePlan
    patch: PatchRequest


class _Changed(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def change(
    kube: KubeClient, namespace: str, order: Order, show: Callable[[UpgradePlan], None]
) -> UpgradePlan:
    """Apply a requested change, unless it is a dry run, and return its plan.

    `show` is called with the plan before it is applied, and again if the plan changed after a
    conflict. Raises `Rejected` for a change that cannot be made, `Conflict` after `ATTEMPTS`
    concurrent changes.
    """
    shown: UpgradePlan | None = None
    resource, name = order.target.resource, order.target.name
    for _ in range(ATTEMPTS):
        read: list[ObjectMeta] = []
        try:
            planned = await (_plan_service if resource is RAY_SERVICE else _plan_cluster)(
                kube, namespace, order, read
            )
            if planned.plan != shown:
                show(planned.plan)
                shown = planned.plan
            check(planned.plan, order.target, must_restart=order.must_restart)
            if not order.is_dry_run:
                await kube.patch(resource, namespace, name, planned.patch)
        except (errors.Rejected, errors.Conflict):
            if not read or not await has_changed_since(kube, resource, namespace, read[0]):
                raise
        else:
            return planned.plan
    raise errors.Conflict(
        f"the spec of {order.target} changed {ATTEMPTS} times while it was read; nothing is changed"
    )


async def _plan_service(
    kube: KubeClient, namespace: str, order: Order, read: list[ObjectMeta]
) -> _Planned:
    snapshot = await reader.read(kube, namespace, order.target.name)
    service = snapshot.service
    read.append(service.metadata)
    actions.check_is_managed(service)
    patch = _patch(service.metadata, (CONFIG,), order.decide(service.raw_cluster_config))
    goal = await reader.patch(kube, namespace, order.target.name, patch)
    return _Planned(
        plan=plans.build(snapshot, goal, BETA, Sizing(), now=session.read_clock()), patch=patch
    )


async def _plan_cluster(
    kube: KubeClient, namespace: str, order: Order, read: list[ObjectMeta]
) -> _Planned:
    body = await kube.get(RAY_CLUSTER, namespace, order.target.name)
    cluster = msgspec.json.decode(body, type=RayCluster)
    read.append(cluster.metadata)
    check_is_recreated(cluster)
    edits = order.decide(cluster.raw_spec)
    patch = _patch(cluster.metadata, (), edits)
    await reader.try_patch(kube, RAY_CLUSTER, namespace, order.target.name, patch)
    return _Planned(plan=plan_cluster(cluster, edits), patch=patch)


def _patch(meta: ObjectMeta, root: FieldPath, edits: Sequence[FieldEdit]) -> PatchRequest:
    return PatchRequest(
        body=changes.build_operations(meta, ("spec", *root), edits), content_type=JSON_PATCH
    )


async def has_changed_since(
    kube: KubeClient, resource: Resource, namespace: str, was: ObjectMeta
) -> bool:
    """Return whether the object's spec changed since its metadata `was` was read.

    In that case an error may concern the new spec instead of the spec that was read.
    """
    now = msgspec.json.decode(await kube.get(resource, namespace, was.name), type=_Changed).metadata
    return (now.uid, now.generation) != (was.uid, was.generation)
