"""Checks a manifest against the CustomResourceDefinition: names and types of fields, enums, bounds.

The schema is that of our generated CRDs. The API server would drop an unknown field and its value
silently; so an unknown field is an error, with the most similar known name.
"""

import difflib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, cast

from common.api.opaque import Json
from crd_generator import definitions
from raybus_cli.manifests.reading import Place

_FILES: Final = {"RayCluster": "ray.io_rayclusters.yaml", "RayService": "ray.io_rayservices.yaml"}
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_TYPE_NAMES: Final = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_COLLECTION_NAMES: Final = {"object": "a mapping", "array": "a list"}
OPAQUE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

Problem = tuple[Place, str]


def problems(kind: str, body: Json) -> list[Problem]:
    """Return what is wrong with the shape of a spec, field by field."""
    return list(_check(body.get("spec"), _schema(kind), ("spec",)))


@lru_cache(maxsize=2)
def _schema(kind: str) -> Json:
    versions = cast("list[Json]", definitions.all_definitions()[_FILES[kind]]["spec"]["versions"])
    v1 = next(each for each in versions if each["name"] == "v1")
    return v1["schema"]["openAPIV3Schema"]["properties"]["spec"]


def _check(value: object, schema: Json, place: Place) -> Iterator[Problem]:
    if schema.get(INT_OR_STRING):
        if not isinstance(value, int | str | float) or isinstance(value, bool):
            yield place, "must be a number or a text"
        return
    kind = str(schema.get("type", ""))
    if value is None:
        if not schema.get("nullable") and "default" not in schema and len(place) == 1:
            yield place, "is missing"
        return
    if kind and not _is_a(value, kind):
        yield place, f"must be {_TYPE_NAMES.get(kind) or _COLLECTION_NAMES.get(kind, kind)}, not {_shown(value)}"
        return
    yield from _limits(value, schema, place)
    if isinstance(value, dict):
        yield from _mapping(cast("Json", value), schema, place)
    elif isinstance(value, list):
        items: Json = schema.get("items") or {}
        for at, each in enumerate(cast("list[object]", value)):
            yield from _check(each, items, (*place, at))


def _mapping(value: Json, schema: Json, place: Place) -> Iterator[Problem]:
    properties = cast("dict[str, Json]", schema.get("properties") or {})
    extra = schema.get("additionalProperties")
    for key in cast("list[str]", schema.get("required") or []):
        if value.get(key) is None and "default" not in properties.get(key, {}):
            yield (*place, key), "is required"
    for key, each in value.items():
        if key in properties:
            yield from _check(each, properties[key], (*place, key))
        elif isinstance(extra, dict):
            yield from _check(each, cast("Json", extra), (*place, key))
        elif properties and not schema.get(OPAQUE):
            near = difflib.get_close_matches(key, properties, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield (*place, key), f"unknown field{hint}"


def _limits(value: object, schema: Json, place: Place) -> Iterator[Problem]:
    allowed = cast("list[Any]", schema.get("enum") or [])
    if allowed and value not in allowed:
        yield place, f"{_shown(value)} is none of {', '.join(map(str, allowed))}"
    least = schema.get("minimum")
    if isinstance(least, int) and isinstance(value, int) and value < least:
        yield place, f"must be at least {least}"


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


def _shown(value: object) -> str:
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
