"""How the Go API types serialise: the vocabulary shared by the spec hash and the CRD generator.

`go_schema.json` holds Kubernetes' types as read by `crd_generator.go_source`; `ray_types` adds the ray.io types from our own structs.
A type is named by an expression: `string`, `bool`, `int32`, `int64`, `quantity`, `intOrString`, `time`, `json`, `*T`, `[]T`, `map[string]T`, or the
name of a struct such as `core/v1.Container`.
"""

from functools import cache
from pathlib import Path
from typing import Final

import msgspec

SCHEMA_FILE: Final = Path(__file__).with_name("go_schema.json")


class GoField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of a Go struct; an empty name marks an embedded struct, with fields that appear in place."""

    name: str
    type: str
    keep: bool = False
    """Written even when empty: the Go tag has no `omitempty`."""
    optional: bool = False
    required: bool = False
    nullable: bool = False
    list_type: str = ""
    list_keys: list[str] = []
    atomic: bool = False
    default: str = ""
    """JSON text, empty for none."""
    rules: dict[str, str] = {}
    """Schema limits by kubebuilder's names: Enum, Pattern, Minimum, MaxLength, …"""
    cel: list[tuple[str, str]] = []
    """Pairs of rule and message."""


class GoType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Go struct."""

    fields: list[GoField] = []
    atomic: bool = False
    alias: str = ""
    """What a type that is no struct stands for; only while reading the source."""


class GoSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The types of one Kubernetes version."""

    version: str
    types: dict[str, GoType]


@cache
def kubernetes() -> GoSchema:
    """Load the data file."""
    return msgspec.json.decode(SCHEMA_FILE.read_bytes(), type=GoSchema)
