"""Converts a Go type to an OpenAPI schema like that of KubeRay's published CRDs.

Descriptions are left out. A field is required if Go always writes it and no marker makes it
optional. A `Version` may omit fields, add fields, or drop the validation of values.
"""

import json
from typing import Any, Final, TypeAlias

import msgspec

from common.api import go_types
from common.api.go_types import GoField, GoType

Schema: TypeAlias = dict[str, Any]

_QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INTEGER_OR_STRING: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_EMBEDDED_METADATA: Final[Schema] = {
    "type": "object",
    "properties": {
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
_FIXED: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "float32": {"type": "number"},
    "int64": {"type": "integer", "format": "int64"},
    "time": {"type": "string", "format": "date-time"},
    "intOrString": _INTEGER_OR_STRING,
    "quantity": {**_INTEGER_OR_STRING, "pattern": _QUANTITY_PATTERN},
    "json": {"type": "object"},
    "meta/v1.ObjectMeta": _EMBEDDED_METADATA,
}
_SHAPE: Final = frozenset(
    {"type", "properties", "items", "additionalProperties", "x-kubernetes-int-or-string"}
)
"""Keywords that define fields and nesting. All other keywords validate values."""
_LIMITS: Final = {
    "Pattern": "pattern",
    "MaxLength": "maxLength",
    "MinLength": "minLength",
    "Minimum": "minimum",
    "Maximum": "maximum",
}


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """How one API version differs from the Go types.

    The sets contain names of Go types, or `<type>.<field>`.
    """

    bare: frozenset[str] = frozenset()
    """Types whose schema has only names and types of fields, without validation of values.

    This makes the CRD smaller. The API server still drops unknown fields.
    """
    opaque: frozenset[str] = frozenset()
    """Types whose fields the schema does not describe. The API server keeps all their fields."""
    left_out: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    added: dict[str, dict[str, str]] = msgspec.field(default_factory=dict[str, dict[str, str]])
    """Fields that only this version has: Go type of the struct -> name of the field -> its type."""


def build(go_type: str, version: Version) -> Schema:
    """Convert a Go type, such as `[]core/v1.EnvVar`, to a schema."""
    if go_type.startswith("*"):
        return build(go_type.removeprefix("*"), version)
    if go_type.startswith("[]"):
        return {"type": "array", "items": build(go_type.removeprefix("[]"), version)}
    if go_type.startswith("map[string]"):
        return {
            "type": "object",
            "additionalProperties": build(go_type.removeprefix("map[string]"), version),
        }
    if go_type in version.opaque:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if go_type in version.bare:
        return _bare(build(go_type, msgspec.structs.replace(version, bare=frozenset())))
    return dict(_FIXED[go_type]) if go_type in _FIXED else _struct(go_type, version)


def _bare(full: Schema) -> Schema:
    """Return a copy of the schema without its validation of values."""
    shape = {key: value for key, value in full.items() if key in _SHAPE}
    if "properties" in shape:
        shape["properties"] = {name: _bare(field) for name, field in shape["properties"].items()}
    return shape | {
        key: _bare(shape[key]) for key in ("items", "additionalProperties") if key in shape
    }


def _struct(name: str, version: Version) -> Schema:
    properties: Schema = {}
    required: list[str] = []
    for owner, field in _fields(name, version):
        properties[field.name] = _property(field, version)
        if _is_required(f"{owner}.{field.name}", field, version):
            required.append(field.name)
    schema: Schema = {"type": "object", "properties": dict(sorted(properties.items()))}
    if required:
        schema["required"] = sorted(required)
    if _is_atomic(name):
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _is_atomic(name: str) -> bool:
    kind = go_types.known()[name]
    return kind.atomic or any(_is_atomic(field.type) for field in kind.fields if not field.name)


def _is_required(path: str, field: GoField, version: Version) -> bool:
    always = field.required or (field.keep and not field.optional)
    return path in version.required or (always and path not in version.optional)


def _fields(name: str, version: Version) -> list[tuple[str, GoField]]:
    """Return each field of a Go type, with the name of the Go type that declares it.

    Includes fields of embedded structs.
    """
    known: GoType = go_types.known()[name]
    fields: list[tuple[str, GoField]] = []
    for field in known.fields:
        if not field.name:
            fields.extend(_fields(field.type, version))
        elif f"{name}.{field.name}" not in version.left_out:
            fields.append((name, field))
    added = version.added.get(name, {})
    return fields + [(name, GoField(name=extra, type=kind)) for extra, kind in added.items()]


def _innermost(schema: Schema) -> Schema:
    """Return the schema of the innermost items of a list or map; any other schema unchanged."""
    inner = schema.get("items") or schema.get("additionalProperties")
    return schema if inner is None else _innermost(inner)


def _property(field: GoField, version: Version) -> Schema:
    schema = build(field.type, version)
    if field.default and not field.default.startswith("ref("):
        schema["default"] = json.loads(field.default)
    if field.nullable:
        schema["nullable"] = True
    if field.list_type:
        schema["x-kubernetes-list-type"] = field.list_type
    if field.list_keys:
        schema["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    for rule, limit in field.rules.items():
        _restrict(schema, rule, limit)
    if field.cel:
        schema["x-kubernetes-validations"] = [
            {"message": message, "rule": rule} for rule, message in field.cel
        ]
    return schema


def _restrict(schema: Schema, rule: str, limit: str) -> None:
    """Add a kubebuilder validation marker, such as `MinItems=1`, to the schema of a field."""
    if rule == "Enum":
        schema["enum"] = limit.split(";")
    elif rule == "MinItems":
        schema["minItems"] = int(limit)
    elif rule in _LIMITS:
        _innermost(schema)[_LIMITS[rule]] = int(limit) if limit.isdecimal() else limit
