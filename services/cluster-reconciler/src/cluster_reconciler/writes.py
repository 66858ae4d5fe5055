"""The single writes of a RayCluster's pods and other children, and what the API server's answers mean.

Every answer goes into the state at once, so that the next look reads its own writes.
"""

import asyncio
from datetime import datetime
from typing import Final, assert_never

import msgspec

from cluster_reconciler.actions import (
    Action,
    AnnotatePod,
    CreateChild,
    CreatePod,
    CreateWorker,
    DeleteChild,
    DeletePod,
    DeletePods,
    Refuse,
    ReplaceChild,
    SetFinalizers,
    Tell,
)
from cluster_reconciler.observe import memory_of, refresh_pods
from cluster_reconciler.observed import Child
from cluster_reconciler.pods import creation
from cluster_reconciler.ports import Ports
from common import errors
from common.api import ray_cluster
from common.api.core import Job, Pod, Service
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.bus.cache import version_of
from common.kube.client import Patch
from common.kube.resources import JOB, POD, RAY_CLUSTER, ROLE_BINDING, SERVICE, Resource, label_selector

GRANT_TRIES: Final = 3
GRANT_PAUSE: Final = 0.1
"""Seconds; the copy lags by milliseconds."""

_VIEWS: Final[dict[Resource, type[Service] | type[Job]]] = {SERVICE: Service, JOB: Job}
"""Children that the state holds."""


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server says of a pod that it was asked to delete."""

    metadata: "DeletedMeta"


class DeletedMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tells whether the pod is still there."""

    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] = []


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """Any object, for its metadata."""

    metadata: ObjectMeta


async def carry_out(action: Action, cluster: RayCluster, io: Ports) -> bool:
    """Carry one action out; return whether it changed anything.

    Raises:
        RaybusError: The API server refused it, or did not answer.
    """
    changed = True
    match action:
        case CreateChild() | ReplaceChild() | DeleteChild():
            changed = await _write_child(action, cluster, io)
        case CreatePod(body=body):
            changed = await _create_pod(body, cluster, io)
        case CreateWorker():
            changed = await _create_pod(creation.worker(action, cluster, io.config), cluster, io)
        case DeletePod():
            changed = await _delete_pod(action, cluster, io)
        case DeletePods():
            await _delete_pods(action, cluster, io)
        case AnnotatePod():
            await _annotate_pod(action, cluster, io)
        case SetFinalizers():
            await _set_finalizers(action, cluster, io)
        case Tell():
            pass
        case Refuse(event=event):
            raise errors.InvalidSpec(event.note)
        case _:
            assert_never(action)
    return changed


async def _write_child(action: CreateChild | ReplaceChild | DeleteChild, cluster: RayCluster, io: Ports) -> bool:
    match action:
        case CreateChild():
            return await _create_child(action, cluster, io)
        case ReplaceChild():
            await io.kube.replace(action.resource, cluster.metadata.namespace, action.body)
            return True
        case DeleteChild():
            return await _delete_child(action, cluster, io)


async def _delete_pods(action: DeletePods, cluster: RayCluster, io: Ports) -> None:
    selector = label_selector(action.selector)
    await io.kube.delete_collection(POD, cluster.metadata.namespace, label_selector=selector)
    await refresh_pods(cluster, io)


async def _annotate_pod(action: AnnotatePod, cluster: RayCluster, io: Ports) -> None:
    meta = {"resourceVersion": action.resource_version, "annotations": action.annotations}
    patch = Patch(body={"metadata": meta})
    answer = await io.kube.patch(POD, cluster.metadata.namespace, action.name, patch)
    io.cache.put(msgspec.json.decode(answer, type=Pod))


async def _set_finalizers(action: SetFinalizers, cluster: RayCluster, io: Ports) -> None:
    was = cluster.metadata
    patch = Patch(body={"metadata": {"resourceVersion": was.resource_version, "finalizers": list(action.finalizers)}})
    answer = await io.kube.patch(RAY_CLUSTER, was.namespace, was.name, patch)
    io.cache.put(ray_cluster.decode(answer))


async def _create_child(action: CreateChild, cluster: RayCluster, io: Ports) -> bool:
    namespace, name = cluster.metadata.namespace, action.body["metadata"]["name"]
    try:
        answer, is_new = await _create(action, namespace, io), True
    except errors.AlreadyExists:
        if not action.may_exist:
            answer, is_new = await _own(action.resource, name, cluster, io), False
        else:
            answer, is_new = b"", False
    if action.resource in _VIEWS:
        io.cache.put(msgspec.json.decode(answer, type=_VIEWS[action.resource]))
    memory_of(cluster, io).saw(Child(action.resource, name, action.wanted), now=io.clock.now())
    return is_new


async def _create(action: CreateChild, namespace: str, io: Ports) -> bytes:
    """Create a child; give the API server the moment that it takes to know the Role that a RoleBinding is for.

    It judges whether we may grant a Role by a copy of its own, which learns of the Role that we have just made a little later.
    """
    for _ in range(GRANT_TRIES if action.resource is ROLE_BINDING else 0):
        try:
            return await io.kube.create(action.resource, namespace, action.body)
        except (errors.Forbidden, errors.NotFound):
            await asyncio.sleep(GRANT_PAUSE)
    return await io.kube.create(action.resource, namespace, action.body)


async def _delete_child(action: DeleteChild, cluster: RayCluster, io: Ports) -> bool:
    namespace = cluster.metadata.namespace
    try:
        if action.released is not None:
            await io.kube.replace(action.resource, namespace, action.released)
        await io.kube.delete(action.resource, namespace, action.name, uid=action.uid)
    except errors.NotFound:
        return False
    return True


async def _create_pod(body: Body, cluster: RayCluster, io: Ports) -> bool:
    namespace, name = cluster.metadata.namespace, body["metadata"]["name"]
    memory = memory_of(cluster, io)
    try:
        answer, is_new = await io.kube.create(POD, namespace, body), True
    except (errors.Unavailable, asyncio.CancelledError):
        memory.has_listed_pods = False  # the pod may have been made all the same
        raise
    except errors.AlreadyExists:
        try:
            answer, is_new = await _own(POD, name, cluster, io), False
        except errors.AlreadyExists as problem:
            memory.taken.add(name)
            raise errors.Conflict(str(problem)) from problem
    io.cache.put(msgspec.json.decode(answer, type=Pod))
    return is_new


async def _own(resource: Resource, name: str, cluster: RayCluster, io: Ports) -> bytes:
    """Read an object whose name is taken; if it is our cluster's, all is well, and our state was old."""
    answer = await io.kube.get(resource, cluster.metadata.namespace, name)
    owners = msgspec.json.decode(answer, type=Answered).metadata.owner_references
    if any(owner.uid == cluster.metadata.uid for owner in owners):
        return answer
    text = f'{resource.plural} "{name}" already exists and does not belong to this RayCluster; delete or rename it'
    raise errors.AlreadyExists(text)


async def _delete_pod(action: DeletePod, cluster: RayCluster, io: Ports) -> bool:
    namespace = cluster.metadata.namespace
    known = io.cache.get(Pod, namespace, action.name)
    version = 0 if known is None else version_of(known.metadata)
    try:
        answer = await io.kube.delete(POD, namespace, action.name, uid=action.uid)
    except (errors.NotFound, errors.Conflict) as problem:
        if isinstance(problem, errors.Conflict) and await _is_there(action, namespace, io):
            raise  # refused by somebody else; counting it as gone would bring a pod too many
        io.cache.remove(Pod, namespace, action.name, version=version)
        return False
    memory_of(cluster, io).deleted(action.uid)
    meta = msgspec.json.decode(answer, type=Deleted).metadata
    if meta.deletion_timestamp is not None and (meta.deletion_grace_period_seconds != 0 or meta.finalizers):
        io.cache.put(msgspec.json.decode(answer, type=Pod))
    else:
        io.cache.remove(Pod, namespace, action.name, version=version)
    return True


async def _is_there(action: DeletePod, namespace: str, io: Ports) -> bool:
    """Tell whether a pod is there still, and not another one of its name."""
    try:
        answer = await io.kube.get(POD, namespace, action.name)
    except errors.NotFound:
        return False
    return msgspec.json.decode(answer, type=Answered).metadata.uid == action.uid
