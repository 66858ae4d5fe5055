"""A check of every plan that a test executes: a plan never contradicts itself."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from common import labels
from common.api.opaque import Json
from common.api.ray_service import RayService
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
from common.runtime.replica import ReconcilerParts
from traffic_manager.actions import MoveCapacity

Target = tuple[str, str]
"""Kind and name of an object; both empty for the reconciled object."""
MARKS: Final = (labels.DELETE_AFTER, labels.DRAINING_SINCE)
ROOT: Target = ("", "")
AnyApp = TypeVar("AnyApp", bound=ReconcilerParts)


def checked(app: AnyApp) -> AnyApp:
    """Return an app that raises AssertionError when it makes a plan that contradicts itself."""
    reconciler = cast("Reconciler[Any, Plan[Any]]", app.reconciler)
    make_plan = reconciler.make_plan

    def make_checked_plan(observed: Any, now: Any) -> Plan[Any]:
        plan = make_plan(observed, now)
        found = list(contradictions(plan, getattr(observed, "service", None)))
        assert not found, found
        return plan

    return replace(app, reconciler=replace(reconciler, make_plan=make_checked_plan))


def contradictions(plan: Plan[Any], service: RayService | None = None) -> Iterator[str]:
    """Yield actions of a plan that undo each other, or that cannot succeed after an earlier action.

    `service` is the RayService as it was observed: its status names the clusters that are needed
    where the plan writes no status.
    """
    writes: dict[Target, list[Action]] = defaultdict(list)
    for action in actions_of(plan):
        if (target := _target(action)) is not None:
            writes[target].append(action)
    for (kind, name), actions in writes.items():
        where = f"{kind} {name}" if kind else "the reconciled object"
        yield from (f"{where}: {each}" for each in _of_object(actions))
    if service is not None and service.metadata.deletion_timestamp is not None:
        return
    for name in sorted(_named(writes[ROOT], service)):
        for action in writes[RAY_CLUSTER.kind, name]:
            if isinstance(action, Delete) or _is_marked(action):
                yield f"RayCluster {name}: the status names it, and the plan ends it: {action}"


def actions_of(plan: Plan[Any]) -> Iterator[Action]:
    """Yield all actions of a plan in order."""
    for step in plan.actions:
        match step:
            case Parallel():
                yield from step.actions
            case MoveCapacity():
                yield step.record
            case _:
                yield cast("Action", step)


def _of_object(actions: list[Action]) -> Iterator[str]:
    """Yield the contradictions between the writes of one object."""
    deleted = [index for index, each in enumerate(actions) if isinstance(each, Delete)]
    if deleted and len(actions) > 1:
        rest = [each for index, each in enumerate(actions) if index != deleted[0]]
        if not all(isinstance(each, Create) for each in rest):
            yield f"deleted and written in one plan: {', '.join(map(str, actions))}"
    versions = [version for each in actions if (version := _version(each)) is not None]
    if len(versions) > len(set(versions)):
        yield f"written twice at one resourceVersion: {', '.join(map(str, actions))}"
    patches = [each for each in actions if isinstance(each, Patch)]
    leaves = [leaf for each in patches for leaf in _leaves(each.patch)]
    if len(leaves) > len(set(leaves)):
        yield f"one field is patched twice: {', '.join(map(str, patches))}"
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
    """Return the resourceVersion that a write requires; for the reconciled object the writer knows
    it.
    """
    body = action.patch if isinstance(action, Patch) else None
    body = action.body if isinstance(action, Replace) else body
    return None if body is None else body.get("metadata", {}).get("resourceVersion")


def _leaves(patch: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the fields that a patch sets, except for the required resourceVersion."""
    for key, value in patch.items():
        if (*path, key) == ("metadata", "resourceVersion"):
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(cast("Json", value), (*path, key))
        else:
            yield (*path, key)


def _named(writes: list[Action], service: RayService | None) -> set[str]:
    """Return the RayClusters that the status of a RayService names once its plan is done."""
    statuses: list[Any] = [each.status for each in writes if isinstance(each, UpdateStatus)]
    if not statuses and service is not None:
        statuses = [service.status]
    sides = (
        getattr(status, side, None)
        for status in statuses
        for side in ("active_service_status", "pending_service_status")
    )
    return {side.ray_cluster_name for side in sides if side is not None} - {""}


def _is_marked(action: Action) -> bool:
    """Return whether an action marks a RayCluster as no longer needed."""
    if not isinstance(action, Patch):
        return False
    annotations: Json = action.patch.get("metadata", {}).get("annotations") or {}
    return any(annotations.get(mark) is not None for mark in MARKS)
