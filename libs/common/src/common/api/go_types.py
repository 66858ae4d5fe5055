"""The Go types of the API, as the spec hash and the CRD generator need them.

`go_schema.json` has Kubernetes' types, as read by `crd_generator.go_source`. The ray.io types are
derived from our own structs, with the fields in the order of declaration. `T | None` becomes a Go
pointer, unless T is a list or a map, which Go can leave nil. `T` becomes a Go value. `Api` has what
Python types cannot express. A type expression is `string`, `bool`, `int32`, `int64`, `float32`,
`quantity`, `intOrString`, `time`, `json`, `*T`, `[]T`, `map[string]T`, or the name of a struct such
as `core/v1.Container`.
"""

import json
import types
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from common.api import ray_cluster, ray_cron_job, ray_job, ray_service
from common.api.opaque import Api

SCHEMA_FILE: Final = Path(__file__).with_name("go_schema.json")
PREFIX: Final = "ray/v1."
POD_SPEC: Final = "core/v1.PodSpec"
CLUSTER_SPEC: Final = PREFIX + ray_cluster.RayClusterSpec.__name__
CLUSTER_STATUS: Final = PREFIX + ray_cluster.RayClusterStatus.__name__
SERVICE_SPEC: Final = PREFIX + ray_service.RayServiceSpec.__name__
SERVICE_STATUS: Final = PREFIX + ray_service.RayServiceStatus.__name__
JOB_SPEC: Final = PREFIX + ray_job.RayJobSpec.__name__
JOB_STATUS: Final = PREFIX + ray_job.RayJobStatus.__name__
CRON_JOB_SPEC: Final = PREFIX + ray_cron_job.RayCronJobSpec.__name__
CRON_JOB_STATUS: Final = PREFIX + ray_cron_job.RayCronJobStatus.__name__
_ROOTS: Final[tuple[type[msgspec.Struct], ...]] = (
    ray_service.RayServiceSpec,
    ray_service.RayServiceStatus,
    ray_job.RayJobStatus,
    ray_cron_job.RayCronJobSpec,
    ray_cron_job.RayCronJobStatus,
)
"""The Python types from which all Go types of ray.io are derived.

The specs of RayClusters and RayJobs are parts of these types."""
_SCALARS: Final[dict[Any, str]] = {str: "string", bool: "bool", int: "int32"}


class GoField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A field of a Go struct.

    An empty name marks an embedded struct, whose fields appear directly in the outer struct.
    """

    name: str
    type: str
    keep: bool = False
    """Whether the field is written even when empty: its Go tag has no `omitempty`."""
    optional: bool = False
    required: bool = False
    nullable: bool = False
    list_type: str = ""
    list_keys: list[str] = []
    atomic: bool = False
    default: str = ""
    """The default as JSON text; empty if there is none."""
    rules: dict[str, str] = {}
    """Schema limits by kubebuilder's names: Enum, Pattern, Minimum, MaxLength, …"""
    cel: list[tuple[str, str]] = []
    """CEL validations as pairs of a rule and its error message."""


class GoType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Go struct, or a name for another type (`alias`)."""

    fields: list[GoField] = []
    atomic: bool = False
    alias: str = ""
    """The type that an alias stands for; only used while Go source is read."""


class GoSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The Go types of one Kubernetes version."""

    version: str
    types: dict[str, GoType]


@cache
def known() -> dict[str, GoType]:
    """Return all Go types of Kubernetes and of ray.io, by name."""
    types = msgspec.json.decode(SCHEMA_FILE.read_bytes(), type=GoSchema).types
    for root in _ROOTS:
        _add(root, types)
    return types


@cache
def fields_of(go_type: str) -> tuple[GoField, ...]:
    """Return the fields of a Go struct, including those of the structs embedded in it."""
    fields = known()[go_type].fields
    return tuple(
        inner for field in fields for inner in ([field] if field.name else fields_of(field.type))
    )


def _add(struct: type[msgspec.Struct], known_types: dict[str, GoType]) -> str:
    name = PREFIX + struct.__name__
    if name not in known_types:
        hints = get_type_hints(struct, include_extras=True)
        fields = msgspec.structs.fields(struct)
        known_types[name] = GoType(
            fields=[_field(field.encode_name, hints[field.name], known_types) for field in fields]
        )
    return name


def _field(name: str, hint: object, known_types: dict[str, GoType]) -> GoField:
    written, facts = _expression(hint, known_types)
    limits = {"Enum": ";".join(facts.enum)} if facts.enum else {}
    if facts.minimum is not None:
        limits["Minimum"] = str(facts.minimum)
    if facts.min_length is not None:
        limits["MinLength"] = str(facts.min_length)
    if facts.min_items is not None:
        limits["MinItems"] = str(facts.min_items)
    if (most := facts.max_length or _max_length(hint)) is not None:
        limits["MaxLength"] = str(most)
    return GoField(
        name=name,
        type=written,
        keep=facts.keep,
        optional=facts.optional or not facts.keep,
        nullable=facts.nullable,
        list_type="map" if facts.keys else facts.list_type,
        list_keys=list(facts.keys),
        default="" if facts.default is None else json.dumps(facts.default),
        rules=limits,
        cel=list(facts.cel),
    )


def _max_length(hint: object) -> int | None:
    """Return the maximum length of a text, or of the texts in a list or map."""
    if isinstance(hint, msgspec.Meta):
        return hint.max_length
    return next((most for part in get_args(hint) if (most := _max_length(part))), None)


def _expression(hint: object, known_types: dict[str, GoType]) -> tuple[str, Api]:
    """Return the Go type of a Python type hint, with its outermost `Api` marker.

    The types of structs in the hint are added to `known_types`.
    """
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        facts = [note for note in parts[1:] if isinstance(note, Api)]
        named = next((note.go for note in facts if note.go), None)
        return named or _expression(parts[0], known_types)[0], facts[-1] if facts else Api()
    if kind in {Union, types.UnionType}:
        written = _expression(
            next(part for part in parts if part is not types.NoneType), known_types
        )[0]
        return written if written.startswith(("[]", "map[")) else f"*{written}", Api()
    if kind in {list, dict}:
        return ("[]" if kind is list else "map[string]") + _expression(parts[-1], known_types)[
            0
        ], Api()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _add(hint, known_types), Api()
    return _SCALARS[hint], Api()
