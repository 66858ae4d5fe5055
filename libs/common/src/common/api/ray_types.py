"""The ray.io types as Go types, read off our own structs.

`T | None` is a Go pointer (a map or list for those); `T` is a value; field order is declaration order; `Api` has the rest.
"""

import json
import types
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from common.api import go_types, ray_cluster, ray_service
from common.api.go_types import GoField, GoType
from common.api.markers import Api

PREFIX: Final = "ray/v1."
_SCALARS: Final[dict[Any, str]] = {str: "string", bool: "bool", int: "int32"}
_UNIONS: Final = (Union, types.UnionType)

CLUSTER_SPEC: Final = PREFIX + ray_cluster.RayClusterSpec.__name__
CLUSTER_STATUS: Final = PREFIX + ray_cluster.RayClusterStatus.__name__
SERVICE_SPEC: Final = PREFIX + ray_service.RayServiceSpec.__name__
SERVICE_STATUS: Final = PREFIX + ray_service.RayServiceStatus.__name__
_ROOTS: Final = (
    ray_cluster.RayClusterSpec,
    ray_cluster.RayClusterStatus,
    ray_service.RayServiceSpec,
    ray_service.RayServiceStatus,
)


@cache
def known() -> dict[str, GoType]:
    """Return every Go type by name: Kubernetes' and ours."""
    found = dict(go_types.kubernetes().types)
    for root in _ROOTS:
        _add(root, found)
    return found


def _add(struct: type[msgspec.Struct], found: dict[str, GoType]) -> str:
    name = PREFIX + struct.__name__
    if name not in found:
        hints = get_type_hints(struct, include_extras=True)
        fields = msgspec.structs.fields(struct)
        found[name] = GoType(fields=[_field(field.encode_name, hints[field.name], found) for field in fields])
    return name


def _field(name: str, hint: object, found: dict[str, GoType]) -> GoField:
    written, facts = _expression(hint, found)
    limits = {"Enum": ";".join(facts.enum)} if facts.enum else {}
    if facts.minimum is not None:
        limits["Minimum"] = str(facts.minimum)
    return GoField(
        name=name,
        type=written,
        keep=facts.keep,
        optional=facts.optional or not facts.keep,
        nullable=facts.nullable,
        list_type="map" if facts.keys else "",
        list_keys=list(facts.keys),
        default="" if facts.default is None else json.dumps(facts.default),
        rules=limits,
        cel=list(facts.cel),
    )


def _expression(hint: object, found: dict[str, GoType]) -> tuple[str, Api]:
    """Return the Go type of a Python type, with the facts of its outermost marker."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        named = [note.go for note in notes if isinstance(note, Api) and note.go]
        written = named[0] if named else _expression(inner, found)[0]
        facts = [note for note in notes if isinstance(note, Api)]
        return written, facts[-1] if facts else Api()
    if get_origin(hint) in _UNIONS:
        inner = next(part for part in get_args(hint) if part is not types.NoneType)
        written = _expression(inner, found)[0]
        return written if written.startswith(("[]", "map[")) else f"*{written}", Api()
    if get_origin(hint) is list:
        return "[]" + _expression(get_args(hint)[0], found)[0], Api()
    if get_origin(hint) is dict:
        return "map[string]" + _expression(get_args(hint)[1], found)[0], Api()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _add(hint, found), Api()
    return _SCALARS[hint], Api()
