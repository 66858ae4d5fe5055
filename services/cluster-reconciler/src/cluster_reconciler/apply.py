"""The only module that writes children and Events of a RayCluster.

Every answer goes into the state at once, so that the next look reads its own writes. A failure is noted and told; it stops
the steps that need it and nothing else, except when the API server itself does not answer.
"""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, assert_never

import msgspec

from cluster_reconciler.actions import (
    Action,
    AnnotatePod,
    CreateChild,
    CreatePod,
    DeleteChild,
    DeletePod,
    DeletePods,
    Plan,
    Refuse,
    ReplaceChild,
    SetFinalizers,
    Step,
    Tell,
)
from cluster_reconciler.observe import memory_of, refresh_pods
from cluster_reconciler.observed import Child
from cluster_reconciler.ports import Ports
from cluster_reconciler.reasons import ReplicaFailure
from cluster_reconciler.status.compute import Outcome
from cluster_reconciler.status.replica_failure import Failure
from common import errors
from common.api import ray_cluster
from common.api.core import Job, Pod, Service
from common.api.event import Event
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.bus.cache import version_of
from common.kube.client import Patch
from common.kube.resources import JOB, POD, RAY_CLUSTER, ROLE_BINDING, SERVICE, Resource

GRANT_TRIES: Final = 3
GRANT_PAUSE: Final = 0.1
"""Seconds; the copy lags by milliseconds."""

Result = bool | errors.RaybusError
"""Whether an action changed anything, or why it failed."""

_VIEWS: Final[dict[Resource, type[Service] | type[Job]]] = {SERVICE: Service, JOB: Job}
"""Children that the state holds."""

AT_ONCE: Final = 8
"""Requests of one step that are under way together: a cluster of five hundred workers must not be all that the API server answers."""


class Problem(msgspec.Struct, frozen=True):
    """An action that failed."""

    action: Action
    error: errors.RaybusError


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


async def apply(plan: Plan, cluster: RayCluster, io: Ports) -> tuple[Problem, ...]:
    """Carry a plan out, step by step, then tell of it; return what failed."""
    problems: list[Problem] = []
    events: list[Event] = []
    for step in plan.steps:
        failed, told = await _run(step, cluster, io)
        problems += failed
        events += told
        if any(isinstance(problem.error, errors.Unavailable | errors.Throttled) for problem in failed):
            break
        if failed and step.is_needed:
            break
    refused = any(isinstance(problem.action, Refuse) for problem in problems)
    if plan.mends_children or plan.fault or refused:
        memory_of(cluster, io).doubt()
    async with asyncio.TaskGroup() as group:
        for event, count in _folded(events):
            group.create_task(io.events.record(RAY_CLUSTER, cluster.metadata, event, count=count))
    return tuple(problems)


def outcome(plan: Plan, problems: tuple[Problem, ...]) -> Outcome:
    """Return what the status tells of how a plan went."""
    if plan.refusal:
        return Outcome(failure=Failure(ReplicaFailure.UNSUPPORTED, plan.refusal), is_clean=False)
    failures = [
        (not isinstance(problem.action, CreatePod | DeletePod | DeletePods), Failure(reason, str(problem.error)))
        for problem in problems
        if (reason := _failure_of(problem.action))
    ]
    failure = min(failures, key=lambda each: each[0])[1] if failures else None
    return Outcome(failure=failure, is_clean=not (problems or plan.unfinished or plan.fault))


def _failure_of(action: Action) -> str:
    """Return the reason that the condition ReplicaFailure gives when an action fails; for children we name it as KubeRay does for pods."""
    match action:
        case CreatePod(told=told) | DeletePod(told=told) | DeletePods(told=told):
            return told.failure or ""
        case CreateChild(resource=resource):
            return f"FailedCreate{resource.kind}"
        case ReplaceChild(resource=resource):
            return f"FailedUpdate{resource.kind}"
        case DeleteChild(resource=resource):
            return f"FailedDelete{resource.kind}"
        case Refuse(event=event):
            return event.reason
        case AnnotatePod() | SetFinalizers() | Tell():
            return ""
        case _:
            assert_never(action)


async def _run(step: Step, cluster: RayCluster, io: Ports) -> tuple[list[Problem], list[Event]]:
    """Run a step's actions side by side; return what failed and what there is to tell."""
    problems: list[Problem] = []
    events: list[Event] = []
    for batch in _batches(step.actions):
        async with asyncio.TaskGroup() as group:
            tasks = [(action, group.create_task(_attempt(action, cluster, io))) for action in batch]
        for action, task in tasks:
            result = task.result()
            if isinstance(result, errors.RaybusError):
                problems.append(Problem(action, result))
            events += _told(action, result)
        if problems:
            break
    return problems, events


def _batches(actions: tuple[Action, ...]) -> Iterator[tuple[Action, ...]]:
    """Cut new pods into 1, 2, 4 … so that a quota that is used up is met by a few requests, not by thousands."""
    size = 1 if any(isinstance(action, CreatePod) for action in actions) else AT_ONCE
    while actions:
        yield actions[:size]
        actions, size = actions[size:], min(2 * size, AT_ONCE)


async def _attempt(action: Action, cluster: RayCluster, io: Ports) -> Result:
    """Carry one action out."""
    try:
        return await _carry_out(action, cluster, io)
    except errors.RaybusError as problem:
        return problem


async def _carry_out(action: Action, cluster: RayCluster, io: Ports) -> bool:
    changed = True
    match action:
        case CreateChild() | ReplaceChild() | DeleteChild():
            changed = await _write_child(action, cluster, io)
        case CreatePod():
            changed = await _create_pod(action, cluster, io)
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
    selector = ",".join(f"{label}={value}" for label, value in action.selector.items())
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


async def _create_pod(action: CreatePod, cluster: RayCluster, io: Ports) -> bool:
    namespace, name = cluster.metadata.namespace, action.body["metadata"]["name"]
    memory = memory_of(cluster, io)
    try:
        answer, is_new = await io.kube.create(POD, namespace, action.body), True
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


def _told(action: Action, result: Result) -> list[Event]:
    """Return the Events that tell of an action."""
    match action:
        case Tell(event=event) | Refuse(event=event):
            return [event]
        case AnnotatePod():
            return []
        case _:
            if isinstance(result, errors.RaybusError):
                failed = action.told.failed
                return [] if failed is None else [msgspec.structs.replace(failed, note=f"{failed.note}, {result}")]
            return [action.told.done] if result and action.told.done else []


def _folded(events: Iterable[Event]) -> Iterable[tuple[Event, int]]:
    """Return the first of those that are alike, and how many there are: KubeRay's client folds them into a series."""
    alike: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        alike.setdefault((event.type, event.reason, event.action), []).append(event)
    return [(each[0], len(each)) for each in alike.values()]
