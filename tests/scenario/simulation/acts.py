"""Laws of one plan and of one write: pure, over the plan, the request, and the objects before it.

A plan may not contradict itself; a write may only touch what belongs to the RayService, its clusters, or the user's route that
agreed to it; and a cluster is only created where none that matches is left.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from common import labels
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from common.runtime.actions import Action, Create, Delete, Parallel, Patch, Plan, Replace
from service_reconciler.actions import UpdateServiceStatus
from support.fakes.kube import Request
from traffic_manager.actions import MoveCapacity

Objects = Mapping[tuple[str, str, str], Body]
MARKS: Final = (labels.DELETE_AFTER, labels.DRAINING_SINCE)
"""Annotations of a cluster that is not needed any more."""


def contradictions(plan: Plan[Any], service: RayService) -> Iterator[str]:
    """Yield what a plan does twice to one object, or undoes itself."""
    of_object: dict[tuple[str, str], list[Action]] = defaultdict(list)
    for action in _flat(plan.actions):
        if (place := _place(action)) is not None:
            of_object[place].append(action)
    for (kind, name), actions in of_object.items():
        verbs = [type(each).__name__ for each in actions]
        if len(verbs) > 1 and not (set(verbs) == {"Patch"} and _are_apart(actions)):
            yield f"{kind} {name} gets {', '.join(verbs)} in one plan"
    names = _adopted(plan, service)
    is_going = service.metadata.deletion_timestamp is not None
    for (kind, name), actions in of_object.items():
        if kind == RAY_CLUSTER.kind and name in names and not is_going:
            for action in actions:
                if isinstance(action, Delete):
                    yield f"RayCluster {name} is needed and deleted in one plan"
                if marks := [mark for mark in MARKS if _annotations(action).get(mark)]:
                    yield f"RayCluster {name} is needed and gets {', '.join(marks)} in one plan"


def _flat(actions: Iterable[Action | Parallel]) -> Iterator[Action]:
    for each in actions:
        if isinstance(each, Parallel):
            yield from each.actions
        elif isinstance(each, MoveCapacity):
            yield each.record
        else:
            yield each


def _place(action: Action) -> tuple[str, str] | None:
    match action:
        case Create() | Replace():
            return action.resource.kind, action.body["metadata"]["name"]
        case Patch() | Delete():
            return action.resource.kind, action.name
        case _:
            return None


def _are_apart(actions: list[Action]) -> bool:
    """Return whether patches of one object change different fields."""
    found: set[tuple[str, ...]] = set()
    for action in actions:
        leaves = set(_leaves(cast("Patch", action).patch))
        if found & leaves:
            return False
        found |= leaves
    return True


def _leaves(patch: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in patch.items():
        if (*path, key) == ("metadata", "resourceVersion"):
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(cast("Json", value), (*path, key))
        else:
            yield (*path, key)


def _annotations(action: Action) -> Json:
    return (
        action.patch.get("metadata", {}).get("annotations", {}) if isinstance(action, Patch) else {}
    )


def _adopted(plan: Plan[Any], service: RayService) -> frozenset[str]:
    """Return the clusters that the RayService names once the plan is done."""
    written = [each.status for each in plan.actions if isinstance(each, UpdateServiceStatus)]
    status = written[-1] if written else service.status
    held = (status.active_service_status, status.pending_service_status)
    return frozenset(each.ray_cluster_name for each in held if each.ray_cluster_name)


def is_allowed(request: Request, objects: Objects, service: str) -> bool:
    """Return whether a write touches nothing of others: its object is new, or belongs to what the RayService of that name has."""
    place = (request.kind, request.namespace, request.name)
    before = objects.get(place)
    if before is None or request.kind == "Event" or request.verb == "create":
        return True
    if request.kind == RAY_SERVICE.kind:
        return request.name == service
    if request.kind == "UpgradePolicy":
        return request.subresource == "status"
    meta = before["metadata"]
    if (
        request.kind == HTTP_ROUTE.kind
        and meta.get("annotations", {}).get(labels.ROUTE_PERMITS) == service
    ):
        return request.verb != "delete"
    root = objects.get((RAY_SERVICE.kind, request.namespace, service))
    owners: set[str] = set() if root is None else {root["metadata"]["uid"]}
    owners |= {
        body["metadata"]["uid"]
        for (kind, _, _), body in objects.items()
        if kind == RAY_CLUSTER.kind
        and body["metadata"].get("labels", {}).get(labels.ORIGIN_NAME) == service
    }
    return any(each["uid"] in owners for each in meta.get("ownerReferences", []))


def twin(request: Request, objects: Objects, is_whole: Callable[[str], bool]) -> str | None:
    """Return the cluster that exists, is whole, and has the very spec of one that a request creates."""
    if (request.verb, request.kind) != ("create", RAY_CLUSTER.kind):
        return None
    for (kind, namespace, name), body in objects.items():
        is_kept = kind == RAY_CLUSTER.kind and "deletionTimestamp" not in body["metadata"]
        is_same = (
            is_kept and namespace == request.namespace and essence(body) == essence(request.body)
        )
        if is_same and is_whole(name):
            return name
    return None


def essence(cluster: Body) -> tuple[str, int]:
    """Return what distinguishes the clusters of the simulation: their image, and how many worker groups they have."""
    spec = cluster["spec"]
    image = spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    return image, len(spec.get("workerGroupSpecs", []))
