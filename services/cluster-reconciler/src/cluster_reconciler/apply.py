"""Carries a plan for a RayCluster out, by `writes`, and tells its Events.

A failure is noted and told; it stops the steps that need it and nothing else, except when the API server itself does not answer.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, assert_never

import msgspec

from cluster_reconciler import writes
from cluster_reconciler.actions import (
    Action,
    AnnotatePod,
    CreateChild,
    CreatePod,
    CreateWorker,
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
from cluster_reconciler.observe import memory_of
from cluster_reconciler.ports import Ports
from cluster_reconciler.status.compute import Outcome
from cluster_reconciler.status.replica_failure import Failure
from common import errors
from common.api.event import Event
from common.api.ray_cluster import RayCluster
from common.kube.resources import RAY_CLUSTER

Result = bool | errors.RaybusError
"""Whether an action changed anything, or why it failed."""

AT_ONCE: Final = 8
"""Requests of one step that are under way together: a cluster of five hundred workers must not be all that the API server answers."""


class Problem(msgspec.Struct, frozen=True):
    """An action that failed."""

    action: Action
    error: errors.RaybusError


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
    if plan.refusal is not None:
        return Outcome(failure=plan.refusal, is_clean=False)
    failures = [
        (
            not isinstance(problem.action, CreatePod | CreateWorker | DeletePod | DeletePods),
            Failure(reason, str(problem.error)),
        )
        for problem in problems
        if (reason := _failure_of(problem.action))
    ]
    failure = min(failures, key=lambda each: each[0])[1] if failures else None
    return Outcome(failure=failure, is_clean=not (problems or plan.unfinished or plan.is_partial or plan.fault))


def _failure_of(action: Action) -> str:
    """Return the reason that the condition ReplicaFailure gives when an action fails; for children we name it as KubeRay does for pods."""
    match action:
        case CreatePod(told=told) | CreateWorker(told=told) | DeletePod(told=told) | DeletePods(told=told):
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
    size = 1 if any(isinstance(action, CreatePod | CreateWorker) for action in actions) else AT_ONCE
    while actions:
        yield actions[:size]
        actions, size = actions[size:], min(2 * size, AT_ONCE)


async def _attempt(action: Action, cluster: RayCluster, io: Ports) -> Result:
    """Carry one action out."""
    try:
        return await writes.carry_out(action, cluster, io)
    except errors.RaybusError as problem:
        return problem


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
