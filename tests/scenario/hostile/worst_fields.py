"""The fields that tenants write and services decode, and objects with 1 MB of text in a field.

The texts of RayClusters and RayServices are those of their CRDs. Those of pods, Services, routes
and the other kinds are the ones that our views of them read; so are those of dashboards' answers.
"""

import copy
from collections.abc import Iterator
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from common.ray.serve_status import ServeDetails
from crd_generator import upgrade_policy
from scenario.hostile import attacks
from scenario.hostile.attacks import CLUSTERS, SERVICES, Place, put
from support import crd_schema

SIZE: Final = 10**6
"""Characters of a long text."""
ANNOTATION_SIZE: Final = 250_000
"""Characters of a long annotation. The API server accepts 256 KiB of annotations on one object."""
KEY: Final = "the-key"
"""Placeholder in a place for the name of a map's value, or for an application."""
MAX_DEPTH: Final = 14
ANNOTATIONS: Final = (
    *(*attacks.DURATION_LIKE, *attacks.MOMENT_LIKE, *attacks.JSON_LIKE),
    *(*attacks.SWITCH_LIKE, *attacks.NAME_LIKE),
    *(labels.UPGRADE_POLICY, labels.UPGRADE_POLICY_RECORD),
)
ROOTS: Final[dict[str, tuple[Resource, Body]]] = {
    "RayCluster": (RAY_CLUSTER, CLUSTERS[1]),
    "RayService": (RAY_SERVICE, SERVICES[2]),
}
"""The resource of each kind, and a valid object of the kind."""


class Field(NamedTuple):
    """A text of an object, by its place there."""

    kind: str
    place: Place
    is_key: bool = False
    """Whether the text is the name of a map's value instead of the value."""

    def __str__(self) -> str:
        path = ".".join(f"[{step}]" if isinstance(step, int) else step for step in self.place)
        return f"{self.kind}: {path}{' (key)' if self.is_key else ''}"

    @property
    def size(self) -> int:
        """Return the maximum number of characters of the text."""
        return ANNOTATION_SIZE if "annotations" in self.place[:2] else SIZE

    def with_text(self, body: Body, text: str) -> Body:
        """Return an object with this text in the field."""
        place = (*self.place[:-1], text) if self.is_key else self.place
        found = put(copy.deepcopy(body), place, "x" if self.is_key else text)
        if self.kind in ROOTS and self.place[0] in {"spec", "status"}:
            _complete(found[self.place[0]], crd_schema.of(self.kind, str(self.place[0])))
        return found


def of_crd(kind: str) -> Iterator[Field]:
    """Yield the texts of a kind's spec and status, and the annotations of ours on it."""
    for part in ("spec", "status"):
        yield from (Field(kind, *each) for each in _of_schema(crd_schema.of(kind, part), (part,)))
    for name in ANNOTATIONS:
        yield Field(kind, ("metadata", "annotations", name))


def of_policies() -> Iterator[Field]:
    """Yield the texts of an UpgradePolicy's spec."""
    return (Field("UpgradePolicy", *each) for each in _of_schema(upgrade_policy.spec(), ("spec",)))


def of_view(kind: str, view: object) -> Iterator[Field]:
    """Yield the texts that a view of ours reads of an object or an answer."""
    return (Field(kind, *each) for each in _of_type(view, ()))


def of_answers() -> Iterator[Field]:
    """Yield the texts of a dashboard's answer."""
    return of_view("an answer", ServeDetails)


def is_of_ray(field: Field) -> bool:
    """Return whether a text is one of Ray's own fields, and no part of a pod or a Service."""
    copied = {"template", "podTemplate", "headService", "serveService", "valueFrom", "resources"}
    return copied.isdisjoint(str(each) for each in field.place)


def _complete(value: Any, schema: Json) -> None:
    """Add the fields that a schema requires, so that the decoders accept the object."""
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            _complete(each, schema.get("items", {}))
    if not isinstance(value, dict):
        return
    held, fields = cast("Json", value), cast("Json", schema.get("properties", {}))
    for name in schema.get("required", ()):
        kind = fields[name].get("format", fields[name].get("type", "string"))
        held.setdefault(name, copy.copy(_EMPTY.get(kind, 1)))
    for name, each in held.items():
        _complete(each, fields.get(name, {}))


_EMPTY: Final[Json] = {
    "string": "x",
    "date-time": "2026-01-01T12:00:00Z",
    "boolean": True,
    "object": {},
    "array": [],
}


def _of_schema(schema: Json, place: Place) -> Iterator[tuple[Place, bool]]:
    if schema.get("format") == "date-time":  # the API server refuses any other text
        return
    if schema.get("type") == "string" or schema.get("x-kubernetes-int-or-string"):
        yield place, False
    for name, inner in schema.get("properties", {}).items():
        yield from _of_schema(inner, (*place, name))
    if "items" in schema:
        yield from _of_schema(schema["items"], (*place, 0))
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict):
        yield (*place, KEY), True
        yield from _of_schema(cast("Json", rest), (*place, KEY))


def _of_type(kind: Any, place: Place) -> Iterator[tuple[Place, bool]]:
    """Yield the places of the texts of a type, by the names in JSON."""
    if len(place) > MAX_DEPTH:
        return
    origin, parts = get_origin(kind), get_args(kind)
    if kind is str or (isinstance(kind, type) and issubclass(kind, str)):
        yield place, False
    elif origin in {Annotated, Union, UnionType}:
        for part in parts[:1] if origin is Annotated else parts:
            yield from _of_type(part, place)
    elif origin in {list, tuple, frozenset, set}:
        yield from _of_type(parts[0], (*place, 0))
    elif origin is dict:
        yield (*place, KEY), True
        yield from _of_type(parts[1], (*place, KEY))
    elif kind is msgspec.Raw or kind is Any:
        yield (*place, KEY), False
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        for field in msgspec.structs.fields(kind):
            yield from _of_type(hints[field.name], (*place, field.encode_name))
