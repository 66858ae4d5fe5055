"""Checks whether JSON has the shape of a Go type: maps for structs, lists for slices, and texts, numbers and switches in their places.

The API server refuses any other shape, as far as its CRDs are those of this version. The planner of a pod reads such data unchecked.
"""

from functools import cache
from typing import Any, Final, Optional

import msgspec

from common.api import ray_types
from common.api.go_types import GoField
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService

_SCALARS: Final[dict[str, Any]] = {
    "string": str,
    "bool": bool,
    "int32": int,
    "int64": int,
    "quantity": str | int | float,
    "intOrString": str | int,
    "time": str,
    "json": msgspec.Raw,
}


def misfit(obj: object) -> str | None:
    """Return which field of an object's spec does not fit its type; None for other kinds than the two of Ray."""
    match obj:
        case RayCluster():
            return _problem(ray_types.CLUSTER_SPEC, obj.spec_json)
        case RayService():
            return _problem(ray_types.SERVICE_SPEC, obj.spec_json)
        case _:
            return None


def _problem(go_type: str, text: msgspec.Raw) -> str | None:
    try:
        _decoder(go_type).decode(text)
    except (msgspec.DecodeError, RecursionError) as problem:
        return f"spec: {problem}"
    return None


@cache
def _decoder(go_type: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Optional[_view(go_type)])  # noqa: UP045  (the type is not known before)


@cache
def _view(go_type: str) -> Any:
    """Return the Python type that holds what a Go type holds."""
    if go_type.startswith("*"):
        return _view(go_type.removeprefix("*"))
    if go_type.startswith("[]"):
        return list[_view(go_type.removeprefix("[]"))]
    if go_type.startswith("map[string]"):
        return dict[str, _view(go_type.removeprefix("map[string]"))]
    if go_type in _SCALARS:
        return _SCALARS[go_type]
    fields = [_field(f"field_{number}", go_type, field) for number, field in enumerate(_fields(go_type))]
    return msgspec.defstruct("GoStruct", fields, kw_only=True, gc=False)


def _field(name: str, owner: str, field: GoField) -> tuple[str, Any, Any]:
    if _is_needed(owner, field):
        return name, _view(field.type), msgspec.field(name=field.name)
    return name, Optional[_view(field.type)], msgspec.field(name=field.name, default=None)  # noqa: UP045  (see above)


def _fields(go_type: str) -> list[GoField]:
    """Return the fields as they appear: those of embedded structs stand in their place."""
    found: list[GoField] = []
    for field in ray_types.known()[go_type].fields:
        found += [field] if field.name else _fields(field.type)
    return found


def _is_needed(owner: str, field: GoField) -> bool:
    """Return whether nothing can be read without a field; the rules of validation cover the fields of Ray's own types."""
    is_ours = owner.startswith(ray_types.PREFIX)
    return not is_ours and (field.required or (field.keep and not field.optional)) and not field.default
