"""What is left of an object on the bus: pure.

Objects that a decision reads through a view in `common.api.core` keep the fields of that view; all others keep
everything but the bookkeeping. KubeRay copies a RayService's annotations to its RayClusters, kubectl's last-applied one
included (spec rayservice §4.3), so these two kinds keep theirs.
"""

from typing import Any, Final, cast

import msgspec

from common.api import core
from common.api.opaque import Body
from common.kube.resources import Resource

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
KEEP_LAST_APPLIED: Final = frozenset({"RayService", "RayCluster"})
NEVER: Final = frozenset({"Secret"})
"""Kinds that must not reach the bus."""
ENVIRONMENTS: Final = frozenset({"env", "envFrom"})
VIEWS: Final[dict[str, type[core.Pod] | type[core.EndpointSlice] | type[core.Job]]] = {
    "Pod": core.Pod,
    "EndpointSlice": core.EndpointSlice,
    "Job": core.Job,
}


def trim(resource: Resource, raw: bytes) -> bytes:
    """Return the body that the bus holds of an object."""
    if resource.kind in NEVER:
        raise ValueError(f"a {resource.kind} must not be published")
    view = VIEWS.get(resource.kind)
    if view is not None:
        try:
            found = msgspec.json.decode(raw, type=view)
        except msgspec.ValidationError:
            return _finished(resource, _without_environments(msgspec.json.decode(raw)))
        kept = msgspec.json.encode(found)
        if LAST_APPLIED in found.metadata.annotations:
            return _finished(resource, msgspec.json.decode(kept))
        return _named(resource) + kept[1:]
    return _finished(resource, msgspec.json.decode(raw))


def _without_environments(body: Body) -> Body:
    """Return a copy of what fits no view, without the fields that may hold secrets."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(each) for each in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        return {
            name: of(each) for name, each in fields.items() if not (name in ENVIRONMENTS and isinstance(each, list))
        }

    return of(body)


def _named(resource: Resource) -> bytes:
    """Return the beginning of an object's JSON, with its kind."""
    return f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()


def _finished(resource: Resource, body: Body) -> bytes:
    """Return the JSON of a body, with its kind: the items of a list come without."""
    metadata: Body = body["metadata"]
    metadata.pop("managedFields", None)
    annotations: Body = metadata.get("annotations") or {}
    if resource.kind not in KEEP_LAST_APPLIED:
        annotations.pop(LAST_APPLIED, None)
    return msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body})
