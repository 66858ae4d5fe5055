"""Findings about an object that raybus takes over from KubeRay, derived from the services' plans.

Does no I/O. A write to annotations that only operators read is a note, because it touches no pod,
Service, spec or traffic. The next step of an upgrade in progress is also a note, because KubeRay
would take the same step.

Serve reports each application's config with defaults filled in. Serve therefore has the wanted
config already if the reported config contains all of its fields.
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
    Publish,
    Refuse,
    SetFinalizers,
    UpdateStatus,
)
from traffic_manager.actions import MoveCapacity


class MigrationLevel(StrEnum):
    """The severity of a finding."""

    NOTE = "note"
    """For information; no pod, Service, spec or traffic is touched."""
    UNREAD = "unread"
    """A fact could not be read."""
    UNSUPPORTED = "unsupported"
    """Something is used that raybus does not support."""
    CHANGE = "change"
    """Replacing KubeRay's operator by raybus would change something."""


_WORST: Final = (MigrationLevel.CHANGE, MigrationLevel.UNSUPPORTED, MigrationLevel.UNREAD)


class MigrationFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding and its remedy."""

    level: MigrationLevel
    text: str
    remedy: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """An object, and what would change on it if raybus replaced KubeRay's operator."""

    kind: str
    namespace: str
    name: str
    verdict: str
    """`nothing`, or the worst level among the findings."""
    findings: list[MigrationFinding] = []


def build_subject(
    kind: str, namespace: str, name: str, findings: Iterable[MigrationFinding]
) -> Subject:
    """Build the entry of an object in the report. Its verdict is the level of the worst finding."""
    collected = list(findings)
    level = find_worst(collected)
    verdict = "nothing" if level is None else level.value
    return Subject(kind=kind, namespace=namespace, name=name, verdict=verdict, findings=collected)


def find_worst(findings: Iterable[MigrationFinding]) -> MigrationLevel | None:
    """Return the worst level among the findings; None if all are notes."""
    levels = {finding.level for finding in findings}
    return next((level for level in _WORST if level in levels), None)


def add_note(text: str, remedy: str = "") -> MigrationFinding:
    """Return a finding that does not affect the verdict."""
    return MigrationFinding(level=MigrationLevel.NOTE, text=text, remedy=remedy)


def report_change(text: str, remedy: str = "") -> MigrationFinding:
    """Return a finding about something that raybus would change."""
    return MigrationFinding(level=MigrationLevel.CHANGE, text=text, remedy=remedy)


def report_unsupported(text: str, remedy: str = "") -> MigrationFinding:
    """Return a finding about something that raybus does not support."""
    return MigrationFinding(level=MigrationLevel.UNSUPPORTED, text=text, remedy=remedy)


def report_unread(text: str, remedy: str = "") -> MigrationFinding:
    """Return a finding about a fact that could not be read."""
    return MigrationFinding(level=MigrationLevel.UNREAD, text=text, remedy=remedy)


_STEPS: Final = frozenset({SERVICE, HTTP_ROUTE, GRPC_ROUTE, GATEWAY})
"""Kinds that an upgrade in progress may change in its next step."""
_WARNING: Final = "Warning"


def judge_cluster_plan(plan: ClusterPlan, remedy: str) -> list[MigrationFinding]:
    """Return the findings about cluster-reconciler's plan; `remedy` is added to each change."""
    collected: list[MigrationFinding] = []
    for step in plan.actions:
        collected += [
            finding for action in step.actions for finding in _judge_cluster_action(action, remedy)
        ]
        if any(isinstance(action, Refuse) for action in step.actions):
            return collected  # a rejected cluster gets no further actions
    if plan.problem:
        collected.append(report_change(f"raybus would wait: {plan.problem}", remedy))
    return collected


class ActionContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a RayService by which its planned actions are judged."""

    moves: bool
    """Whether an upgrade is in progress."""
    remedy: str
    """Remedy that is added to each change."""
    is_held: Callable[[Submit], bool]
    """Function that returns whether Serve already has the config that an action would send."""


def judge_service_actions(
    actions: Iterable[Action], context: ActionContext
) -> list[MigrationFinding]:
    """Return the findings about the actions planned for a RayService, without duplicates."""
    collected = [
        finding for action in actions for finding in _judge_service_action(action, context)
    ]
    return list(dict.fromkeys(collected))


def _judge_cluster_action(action: Action, remedy: str) -> Iterator[MigrationFinding]:
    match action:
        case Refuse(event=event):
            yield add_note(
                f"is rejected, as by KubeRay: {event.note}", "correct it before or after"
            )
        case EmitEvent(event=event):
            yield from _note_warning(event)
        case Patch(resource=resource, name=name, patch=patch) if resource == POD:
            annotations = _format_names(patch["metadata"]["annotations"])
            yield add_note(f"Pod {name} gets the annotations {annotations}; it keeps running")
        case _:
            yield report_change(f"raybus would {action}", remedy)


def _judge_service_action(action: Action, context: ActionContext) -> Iterator[MigrationFinding]:
    moves, remedy = context.moves, context.remedy
    match action:
        case Publish():
            return
        case EmitEvent(event=event):
            yield from _note_warning(event)
        case UpdateStatus():
            return  # the status is compared field by field elsewhere
        case Annotate(name=name):
            yield add_note(f"the RayService gets the annotation {name}")
        case SetFinalizers(finalizers=finalizers, spec=None):
            yield add_note(f"the RayService gets the finalizers {', '.join(finalizers)}")
        case Patch(resource=resource, name=name, patch=patch):
            yield _judge_change(
                f"{resource.kind} {name}",
                patch,
                is_step=moves and resource in _STEPS,
                remedy=remedy,
            )
        case Submit() if context.is_held(action):
            yield add_note(
                f"RayCluster {action.cluster.metadata.name} gets its present Serve config once "
                "more, so that it is recorded; "
                "so does KubeRay after each restart"
            )
        case Submit() | MoveCapacity():
            yield _report_effect(str(action), is_step=moves, remedy=remedy)
        case _:
            yield _report_effect(str(action), is_step=False, remedy=remedy)


def _judge_change(what: str, patch: Json, *, is_step: bool, remedy: str) -> MigrationFinding:
    fields = list(_list_fields(patch))
    if all(field.startswith("metadata.annotations.") for field in fields):
        names = [field.removeprefix("metadata.annotations.") for field in fields]
        return add_note(f"{what} gets the annotations {_format_names(names)}")
    return _report_effect(f"change {what} ({', '.join(fields)})", is_step=is_step, remedy=remedy)


def _report_effect(text: str, *, is_step: bool, remedy: str) -> MigrationFinding:
    if is_step:
        return add_note(f"the upgrade continues at its current step: {text}")
    return report_change(f"raybus would {text}", remedy)


def _note_warning(event: KubeEvent) -> Iterator[MigrationFinding]:
    if event.type == _WARNING:
        yield add_note(f"raybus would write the Event {event.reason}: {event.note}")


def _list_fields(patch: Json) -> Iterator[str]:
    """Yield the fields that a patch writes, at most two levels deep.

    `resourceVersion` is left out, because it is only the precondition of the patch.
    """
    for outer, inner in patch.items():
        if not isinstance(inner, dict):
            yield outer
            continue
        for name, value in cast("dict[str, Any]", inner).items():
            if (outer, name) == ("metadata", "resourceVersion"):
                continue
            if outer == "metadata" and isinstance(value, dict):
                yield from (f"{outer}.{name}.{key}" for key in cast("dict[str, Any]", value))
            else:
                yield f"{outer}.{name}"


def list_differing(old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    """Return the names, as in manifests, of the fields that differ between two statuses.

    The names are at most two levels deep.
    """
    fields: list[str] = []
    before, after = (cast("Json", msgspec.to_builtins(spec)) for spec in (old, new))
    for name in sorted({*before, *after}):
        was, becomes = before.get(name), after.get(name)
        if was == becomes:
            continue
        if isinstance(was, dict) and isinstance(becomes, dict):
            inner = cast("tuple[Json, Json]", (was, becomes))
            fields += [
                f"{name}.{key}"
                for key in sorted({*inner[0], *inner[1]})
                if inner[0].get(key) != inner[1].get(key)
            ]
        else:
            fields.append(name)
    return fields


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def serves(details: ServeDetails | None, action: Submit) -> bool:
    """Return whether Serve already has the config and capacity that an action would send.

    `details` is the state that Serve reported; None if it is unknown.
    """
    if details is None:
        return False
    if action.capacity is not None and serve_status.capacity(details) != action.capacity:
        return False
    try:
        wanted = serve_config.parse(action.given.serve_config).to_json()
    except errors.InvalidSpec:
        return False
    apps = {
        str(application.get("name") or DEFAULT_APP): application
        for application in cast("list[Json]", wanted.get("applications") or [])
    }
    applications = details.named()
    return apps.keys() == applications.keys() and all(
        _is_within(apps[name], applications[name].deployed_app_config) for name in apps
    )


def _is_within(wanted: Any, actual: Any) -> bool:
    """Return whether `actual` contains all of `wanted`; its other fields are defaults of Serve."""
    match wanted:
        case dict():
            fields = cast("Json", wanted)
            return isinstance(actual, dict) and all(
                _is_within(value, cast("Json", actual).get(key)) for key, value in fields.items()
            )
        case list():
            items, others = (
                cast("list[Any]", wanted),
                cast("list[Any]", actual if isinstance(actual, list) else []),
            )
            return len(items) == len(others) and all(
                _is_within(*pair) for pair in zip(items, others, strict=True)
            )
        case _:
            return bool(wanted == actual)
