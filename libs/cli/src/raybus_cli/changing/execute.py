"""Reads an object, plans the change, and writes it by a JSON patch; a spec that changed in between is read and planned again."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from common import errors
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA
from common.kube.client import JSON_PATCH, KubeClient, Patch
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from raybus_cli.access import session
from raybus_cli.changing import edits as changes
from raybus_cli.changing import effects
from raybus_cli.changing.edits import Edit, Place
from raybus_cli.control import actions
from raybus_cli.planning import plan as plans
from raybus_cli.planning import server_dry_run
from raybus_cli.planning.differences import CONFIG
from raybus_cli.planning.plan import Plan, Sizing
from raybus_cli.reading import reader
from raybus_cli.reading.kinds import Target

ATTEMPTS: Final = 5

Decide = Callable[[Json], Sequence[Edit]]
"""Returns the edits of a cluster spec."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a user wants."""

    target: Target
    decide: Decide
    must_restart: bool = False
    is_dry_run: bool = False


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    plan: Plan
    patch: Patch


class _Changed(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def change(kube: KubeClient, namespace: str, order: Order, show: Callable[[Plan], None]) -> Plan:
    """Change the object unless that is a dry run; `show` gets the plan before, again only if it is another by then."""
    shown: Plan | None = None
    resource, name = order.target.resource, order.target.name
    for _ in range(ATTEMPTS):
        read: list[ObjectMeta] = []
        try:
            planned = await (_service if resource is RAY_SERVICE else _cluster)(kube, namespace, order, read)
            if planned.plan != shown:
                show(planned.plan)
                shown = planned.plan
            effects.check(planned.plan, order.target, must_restart=order.must_restart)
            if not order.is_dry_run:
                await kube.patch(resource, namespace, name, planned.patch)
        except (errors.Rejected, errors.Conflict):
            if not read or not await _is_another(kube, resource, namespace, read[0]):
                raise
        else:
            return planned.plan
    raise errors.Conflict(f"the spec of {order.target} changed {ATTEMPTS} times while it was read; nothing is changed")


async def _service(kube: KubeClient, namespace: str, order: Order, read: list[ObjectMeta]) -> _Planned:
    snapshot = await reader.read(kube, namespace, order.target.name)
    service = snapshot.service
    read.append(service.metadata)
    actions.expect_ours(service)
    patch = _patch(service.metadata, (CONFIG,), order.decide(service.raw_cluster_config))
    goal = await server_dry_run.patch(kube, namespace, order.target.name, patch)
    return _Planned(plan=plans.build(snapshot, goal, BETA, Sizing(), now=session.now()), patch=patch)


async def _cluster(kube: KubeClient, namespace: str, order: Order, read: list[ObjectMeta]) -> _Planned:
    body = await kube.get(RAY_CLUSTER, namespace, order.target.name)
    cluster = msgspec.json.decode(body, type=RayCluster)
    read.append(cluster.metadata)
    effects.expect_recreated(cluster)
    edits = order.decide(cluster.raw_spec)
    patch = _patch(cluster.metadata, (), edits)
    await server_dry_run.send(kube, RAY_CLUSTER, namespace, order.target.name, patch)
    return _Planned(plan=effects.of_cluster(cluster, edits), patch=patch)


def _patch(meta: ObjectMeta, root: Place, edits: Sequence[Edit]) -> Patch:
    return Patch(body=changes.operations(meta, ("spec", *root), edits), content_type=JSON_PATCH)


async def _is_another(kube: KubeClient, resource: Resource, namespace: str, was: ObjectMeta) -> bool:
    """Return whether the object has another spec than was read, so that the refusal may be about that."""
    now = msgspec.json.decode(await kube.get(resource, namespace, was.name), type=_Changed).metadata
    return (now.uid, now.generation) != (was.uid, was.generation)
