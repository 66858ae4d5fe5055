"""A check of every plan that a test executes: a plan never contradicts itself."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from common.runtime.actions import (
    Action,
    Annotate,
    Create,
    Delete,
    Parallel,
    Patch,
    Plan,
    Replace,
    SetFinalizers,
    UpdateStatus,
)
from common.runtime.reconciler import Reconciler
from common.runtime.replica import App

Target = tuple[str, str]
"""Kind and name; both empty for the reconciled object."""
ROOT: Target = ("", "")
AnyApp = TypeVar("AnyApp", bound=App)


def checked(app: AnyApp) -> AnyApp:
    """Return an app that raises AssertionError when it makes a plan that contradicts itself."""
    reconciler = cast("Reconciler[Any, Plan[Any]]", app.reconciler)
    make_plan = reconciler.make_plan

    def make_checked_plan(observed: Any, now: Any) -> Plan[Any]:
        plan = make_plan(observed, now)
        found = list(contradictions(plan))
        assert not found, found
        return plan

    return msgspec.structs.replace(
        app, reconciler=msgspec.structs.replace(reconciler, make_plan=make_checked_plan)
    )


def contradictions(plan: Plan[Any]) -> Iterator[str]:
    """Yield what a plan does to an object and undoes, or what cannot succeed after what it does."""
    writes: dict[Target, list[Action]] = defaultdict(list)
    for action in actions_of(plan):
        if (target := _target(action)) is not None:
            writes[target].append(action)
    for (kind, name), actions in writes.items():
        where = f"{kind} {name}" if kind else "the reconciled object"
        yield from (f"{where}: {each}" for each in _of_object(actions))
    named = _named(writes[ROOT])
    for name in sorted(named):
        for action in writes[RAY_CLUSTER.kind, name]:
            if isinstance(action, Delete) or _gives_deadline(action):
                yield f"the status names RayCluster {name}, and the plan ends it: {action}"


def actions_of(plan: Plan[Any]) -> Iterator[Action]:
    """Yield all actions of a plan in order."""
    for step in plan.actions:
        yield from step.actions if isinstance(step, Parallel) else (cast("Action", step),)


def _of_object(actions: list[Action]) -> Iterator[str]:
    """Yield what is wrong with the writes of one object."""
    deleted = [index for index, each in enumerate(actions) if isinstance(each, Delete)]
    if deleted and len(actions) > 1:
        rest = [each for index, each in enumerate(actions) if index != deleted[0]]
        if not all(isinstance(each, Create) for each in rest):
            yield f"deleted and written in one plan: {', '.join(map(str, actions))}"
    versions = [version for each in actions if (version := _version(each)) is not None]
    if len(versions) > len(set(versions)):
        yield f"written twice at one resourceVersion: {', '.join(map(str, actions))}"
    if sum(isinstance(each, UpdateStatus) for each in actions) > 1:
        yield "its status is written twice"
    if sum(isinstance(each, Create) for each in actions) > 1:
        yield "created twice"


def _target(action: Action) -> Target | None:
    match action:
        case Create() | Replace():
            return action.resource.kind, action.body["metadata"]["name"]
        case Patch() | Delete():
            return action.resource.kind, action.name
        case UpdateStatus() | SetFinalizers() | Annotate():
            return ROOT
        case _:
            return None


def _version(action: Action) -> str | None:
    """Return the resourceVersion that a write needs; of the reconciled object the writer knows it."""
    body = action.patch if isinstance(action, Patch) else None
    body = action.body if isinstance(action, Replace) else body
    return None if body is None else body.get("metadata", {}).get("resourceVersion")


def _named(writes: list[Action]) -> set[str]:
    """Return the RayClusters that a written status of a RayService names."""
    statuses = (each.status for each in writes if isinstance(each, UpdateStatus))
    sides = (
        getattr(status, side, None)
        for status in statuses
        for side in ("active_service_status", "pending_service_status")
    )
    return {side.ray_cluster_name for side in sides if side is not None} - {""}


def _gives_deadline(action: Action) -> bool:
    if not isinstance(action, Patch):
        return False
    annotations: Json = action.patch.get("metadata", {}).get("annotations") or {}
    return annotations.get(labels.DELETE_AFTER) is not None
