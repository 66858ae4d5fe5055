"""Checks whether JSON has the shape of a Go type: maps for structs, lists for slices, and texts, numbers and switches in their places.

The API server refuses any other shape, as far as its CRDs are those of this version. The planner of a pod reads such data unchecked.
"""

from functools import cache
from typing import Any, Final, Optional

import msgspec

from common.api import go_types
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
    if not isinstance(obj, RayCluster | RayService):
        return None
    go_type = go_types.CLUSTER_SPEC if isinstance(obj, RayCluster) else go_types.SERVICE_SPEC
    try:
        _decoder(go_type).decode(obj.spec_json)
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
    is_ours, fields = go_type.startswith(go_types.PREFIX), enumerate(go_types.fields_of(go_type))
    views = [_field(f"field_{number}", field, is_ours=is_ours) for number, field in fields]
    return msgspec.defstruct("GoStruct", views, kw_only=True, gc=False)


def _field(name: str, field: GoField, *, is_ours: bool) -> tuple[str, Any, Any]:
    """Return a field; one without which nothing can be read is required. The rules of validation cover those of Ray's own types."""
    if not is_ours and (field.required or (field.keep and not field.optional)) and not field.default:
        return name, _view(field.type), msgspec.field(name=field.name)
    return name, Optional[_view(field.type)], msgspec.field(name=field.name, default=None)  # noqa: UP045  (see above)
