"""What the services' own plans for an object mean for whoever owns it: which of their actions would be felt, and how. Pure.

A write of annotations that only operators read is a note: no pod, no Service, no spec and no traffic is touched by it. Where an
upgrade is on, its next step is a note too: KubeRay would take it as well.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from cluster_reconciler import actions as cluster_actions
from common.api.event import Event
from common.api.opaque import Json
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, SERVICE
from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import Finding
from service_reconciler import actions as service_actions
from traffic_manager import actions as traffic_actions

ServiceAction = service_actions.Action | traffic_actions.Action
Submitted = service_actions.Submit | traffic_actions.Submit
_STEPS: Final = frozenset({SERVICE, HTTP_ROUTE, GRPC_ROUTE, GATEWAY})
"""Kinds that an upgrade that is on may change next."""
_WARNING: Final = "Warning"


def of_cluster(plan: cluster_actions.Plan, remedy: str) -> list[Finding]:
    """Return what cluster-reconciler's plan means; `remedy` is said of whatever would be felt."""
    found: list[Finding] = []
    for step in plan.steps:
        found += [each for action in step.actions for each in _of_cluster_action(action, remedy)]
        if any(isinstance(action, cluster_actions.Refuse) for action in step.actions):
            return found  # nothing that follows is done
    if plan.fault:
        found.append(findings.change(f"raybus would wait: {plan.fault}", remedy))
    return found


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a RayService stands, as far as its next writes depend on it."""

    moves: bool
    """Whether an upgrade is on."""
    remedy: str
    """What to do about whatever would be felt."""
    is_held: Callable[[Submitted], bool]
    """Tells whether a cluster's Serve has the config already that would be sent."""


def of_service(actions: Iterable[ServiceAction], standing: Standing) -> list[Finding]:
    """Return what the plans for a RayService mean."""
    found = [each for action in actions for each in _of_service_action(action, standing)]
    return list(dict.fromkeys(found))


def _of_cluster_action(action: cluster_actions.Action, remedy: str) -> Iterator[Finding]:
    match action:
        case cluster_actions.Tell(event=event):
            yield from _told(event)
        case cluster_actions.Refuse(event=event):
            yield findings.note(f"is refused, as by KubeRay: {event.note}", "mend it before or after")
        case cluster_actions.AnnotatePod(name=name, annotations=annotations):
            yield findings.note(f"Pod {name} gets the annotations {_listed(annotations)}; it goes on running")
        case _:
            yield findings.change(f"raybus would {action}", remedy)


def _of_service_action(action: ServiceAction, standing: Standing) -> Iterator[Finding]:
    moves, remedy = standing.moves, standing.remedy
    match action:
        case service_actions.Publish():
            return
        case service_actions.Tell(event=event):
            yield from _told(event)
        case service_actions.WriteStatus():
            return  # judged field by field
        case service_actions.Annotate(name=name):
            yield findings.note(f"the RayService gets the annotation {name}")
        case service_actions.SetFinalizers(finalizers=finalizers, cluster_config=None):
            yield findings.note(f"the RayService gets the finalizers {', '.join(finalizers)}")
        case service_actions.Change(resource=resource, name=name, patch=patch):
            yield _of_change(f"{resource.kind} {name}", patch, is_step=moves and resource in _STEPS, remedy=remedy)
        case service_actions.Submit() | traffic_actions.Submit() if standing.is_held(action):
            yield findings.note(
                f"RayCluster {action.cluster.metadata.name} is sent the Serve config once more that it has, so that it is recorded; "
                "so does KubeRay after each restart"
            )
        case service_actions.Submit() | traffic_actions.Submit() | traffic_actions.MoveCapacity():
            yield _felt(str(action), is_step=moves, remedy=remedy)
        case _:
            yield _felt(str(action), is_step=False, remedy=remedy)


def _of_change(what: str, patch: Json, *, is_step: bool, remedy: str) -> Finding:
    fields = list(_fields(patch))
    if all(each.startswith("metadata.annotations.") for each in fields):
        names = [each.removeprefix("metadata.annotations.") for each in fields]
        return findings.note(f"{what} gets the annotations {_listed(names)}")
    return _felt(f"change {what} ({', '.join(fields)})", is_step=is_step, remedy=remedy)


def _felt(text: str, *, is_step: bool, remedy: str) -> Finding:
    if is_step:
        return findings.note(f"the upgrade goes on where it stands: {text}")
    return findings.change(f"raybus would {text}", remedy)


def _told(event: Event) -> Iterator[Finding]:
    if event.type == _WARNING:
        yield findings.note(f"raybus would tell the Event {event.reason}: {event.note}")


def _fields(patch: Json) -> Iterator[str]:
    """Yield the fields that a patch writes, two levels down; its precondition is none."""
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
    """Return the fields in which two statuses differ, as they are called in manifests, down to the innermost struct."""
    found: list[str] = []
    before, after = (cast("Json", msgspec.to_builtins(each)) for each in (old, new))
    for name in sorted({*before, *after}):
        was, becomes = before.get(name), after.get(name)
        if was == becomes:
            continue
        if isinstance(was, dict) and isinstance(becomes, dict):
            inner = cast("tuple[Json, Json]", (was, becomes))
            found += [
                f"{name}.{key}" for key in sorted({*inner[0], *inner[1]}) if inner[0].get(key) != inner[1].get(key)
            ]
        else:
            found.append(name)
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
