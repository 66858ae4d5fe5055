"""Findings about a take-over, derived from the services' plans for an object. Pure.

A write to annotations that only operators read is a note, because it touches no pod, Service, spec
or traffic. During an upgrade its next step is also a note, because KubeRay would take the same
step.

Serve reports each application's config with defaults filled in. Two configs are therefore equal if
all fields of the wanted config are in the reported one.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from cluster_reconciler.actions import ClusterPlan
from common import errors
from common.api.opaque import Json
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, POD, SERVICE
from common.ray import serve_config, serve_status
from common.ray.serve_status import DEFAULT_APP, ServeDetails
from common.ray.submit import Submit
from common.runtime.actions import (
    Action,
    Annotate,
    EmitEvent,
    KubeEvent,
    Patch,
    Refuse,
    SetFinalizers,
    UpdateStatus,
)
from service_reconciler.actions import Publish
from traffic_manager.actions import MoveCapacity


class Level(StrEnum):
    """The severity of a finding."""

    NOTE = "note"
    """For information; no pod, Service, spec or traffic is touched."""
    UNREAD = "unread"
    """A fact could not be read."""
    UNSUPPORTED = "unsupported"
    """Something is used that raybus does not support."""
    CHANGE = "change"
    """The take-over would change something."""


_WORST: Final = (Level.CHANGE, Level.UNSUPPORTED, Level.UNREAD)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding and its remedy."""

    level: Level
    text: str
    remedy: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """An object, and what the take-over would change on it."""

    kind: str
    namespace: str
    name: str
    verdict: str
    """`nothing`, or the worst level among the findings."""
    findings: list[Finding] = []


def subject(kind: str, namespace: str, name: str, findings: Iterable[Finding]) -> Subject:
    """Build the entry of an object in the report; its verdict is that of the worst finding."""
    found = list(findings)
    level = worst(found)
    verdict = "nothing" if level is None else level.value
    return Subject(kind=kind, namespace=namespace, name=name, verdict=verdict, findings=found)


def worst(findings: Iterable[Finding]) -> Level | None:
    """Return the worst level among the findings; None if all are notes."""
    levels = {each.level for each in findings}
    return next((level for level in _WORST if level in levels), None)


def note(text: str, remedy: str = "") -> Finding:
    """Return a finding that does not affect the verdict."""
    return Finding(level=Level.NOTE, text=text, remedy=remedy)


def change(text: str, remedy: str = "") -> Finding:
    """Return a finding about something that the take-over would change."""
    return Finding(level=Level.CHANGE, text=text, remedy=remedy)


def unsupported(text: str, remedy: str = "") -> Finding:
    """Return a finding about something that raybus does not support."""
    return Finding(level=Level.UNSUPPORTED, text=text, remedy=remedy)


def unread(text: str, remedy: str = "") -> Finding:
    """Return a finding about a fact that could not be read."""
    return Finding(level=Level.UNREAD, text=text, remedy=remedy)


_STEPS: Final = frozenset({SERVICE, HTTP_ROUTE, GRPC_ROUTE, GATEWAY})
"""Kinds that the next step of an upgrade may change."""
_WARNING: Final = "Warning"


def of_cluster(plan: ClusterPlan, remedy: str) -> list[Finding]:
    """Return the findings about cluster-reconciler's plan; `remedy` is added to each change."""
    found: list[Finding] = []
    for step in plan.actions:
        found += [each for action in step.actions for each in _of_cluster_action(action, remedy)]
        if any(isinstance(action, Refuse) for action in step.actions):
            return found  # a rejected cluster gets no further actions
    if plan.fault:
        found.append(change(f"raybus would wait: {plan.fault}", remedy))
    return found


class ActionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a RayService that decides how an action is judged."""

    moves: bool
    """Whether an upgrade is in progress."""
    remedy: str
    """Remedy that is added to each change."""
    is_held: Callable[[Submit], bool]
    """Returns whether a cluster's Serve already has the config that an action would send."""


def of_service(actions: Iterable[Action], context: ActionContext) -> list[Finding]:
    """Return the findings about the actions planned for a RayService, without duplicates."""
    found = [each for action in actions for each in _of_service_action(action, context)]
    return list(dict.fromkeys(found))


def _of_cluster_action(action: Action, remedy: str) -> Iterator[Finding]:
    match action:
        case Refuse(event=event):
            yield note(f"is rejected, as by KubeRay: {event.note}", "correct it before or after")
        case EmitEvent(event=event):
            yield from _warning_note(event)
        case Patch(resource=resource, name=name, patch=patch) if resource == POD:
            annotations = _listed(patch["metadata"]["annotations"])
            yield note(f"Pod {name} gets the annotations {annotations}; it keeps running")
        case _:
            yield change(f"raybus would {action}", remedy)


def _of_service_action(action: Action, context: ActionContext) -> Iterator[Finding]:
    moves, remedy = context.moves, context.remedy
    match action:
        case Publish():
            return
        case EmitEvent(event=event):
            yield from _warning_note(event)
        case UpdateStatus():
            return  # the status is compared field by field elsewhere
        case Annotate(name=name):
            yield note(f"the RayService gets the annotation {name}")
        case SetFinalizers(finalizers=finalizers, spec=None):
            yield note(f"the RayService gets the finalizers {', '.join(finalizers)}")
        case Patch(resource=resource, name=name, patch=patch):
            yield _of_change(
                f"{resource.kind} {name}",
                patch,
                is_step=moves and resource in _STEPS,
                remedy=remedy,
            )
        case Submit() if context.is_held(action):
            yield note(
                f"RayCluster {action.cluster.metadata.name} gets its present Serve config once "
                "more, so that it is recorded; "
                "so does KubeRay after each restart"
            )
        case Submit() | MoveCapacity():
            yield _felt(str(action), is_step=moves, remedy=remedy)
        case _:
            yield _felt(str(action), is_step=False, remedy=remedy)


def _of_change(what: str, patch: Json, *, is_step: bool, remedy: str) -> Finding:
    fields = list(_fields(patch))
    if all(each.startswith("metadata.annotations.") for each in fields):
        names = [each.removeprefix("metadata.annotations.") for each in fields]
        return note(f"{what} gets the annotations {_listed(names)}")
    return _felt(f"change {what} ({', '.join(fields)})", is_step=is_step, remedy=remedy)


def _felt(text: str, *, is_step: bool, remedy: str) -> Finding:
    if is_step:
        return note(f"the upgrade continues at its current step: {text}")
    return change(f"raybus would {text}", remedy)


def _warning_note(event: KubeEvent) -> Iterator[Finding]:
    if event.type == _WARNING:
        yield note(f"raybus would write the Event {event.reason}: {event.note}")


def _fields(patch: Json) -> Iterator[str]:
    """Yield the fields that a patch writes, two levels deep, without `resourceVersion`.

    `resourceVersion` is the precondition of the patch.
    """
    for outer, inner in patch.items():
        if not isinstance(inner, dict):
            yield outer
            continue
        for name, value in cast("dict[str, Any]", inner).items():
            if (outer, name) == ("metadata", "resourceVersion"):
                continue
            if outer == "metadata" and isinstance(value, dict):
                yield from (f"{outer}.{name}.{each}" for each in cast("dict[str, Any]", value))
            else:
                yield f"{outer}.{name}"


def differing(old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    """Return the fields that differ between two statuses, at most two levels deep.

    Fields are called as in manifests.
    """
    found: list[str] = []
    before, after = (cast("Json", msgspec.to_builtins(each)) for each in (old, new))
    for name in sorted({*before, *after}):
        was, becomes = before.get(name), after.get(name)
        if was == becomes:
            continue
        if isinstance(was, dict) and isinstance(becomes, dict):
            inner = cast("tuple[Json, Json]", (was, becomes))
            found += [
                f"{name}.{key}"
                for key in sorted({*inner[0], *inner[1]})
                if inner[0].get(key) != inner[1].get(key)
            ]
        else:
            found.append(name)
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def has(details: ServeDetails | None, action: Submit) -> bool:
    """Return whether Serve already has the config and capacity that an action would send."""
    if details is None:
        return False
    if action.capacity is not None and serve_status.capacity(details) != action.capacity:
        return False
    try:
        wanted = serve_config.to_json(action.given.serve_config)
    except errors.InvalidSpec:
        return False
    apps = {
        str(each.get("name") or DEFAULT_APP): each
        for each in cast("list[Json]", wanted.get("applications") or [])
    }
    held = details.named()
    return apps.keys() == held.keys() and all(
        _within(apps[name], held[name].deployed_app_config) for name in apps
    )


def _within(wanted: Any, held: Any) -> bool:
    """Return whether a config contains all wanted fields; additional fields are defaults."""
    match wanted:
        case dict():
            fields = cast("Json", wanted)
            return isinstance(held, dict) and all(
                _within(each, cast("Json", held).get(key)) for key, each in fields.items()
            )
        case list():
            items, others = (
                cast("list[Any]", wanted),
                cast("list[Any]", held if isinstance(held, list) else []),
            )
            return len(items) == len(others) and all(
                _within(*pair) for pair in zip(items, others, strict=True)
            )
        case _:
            return bool(wanted == held)
