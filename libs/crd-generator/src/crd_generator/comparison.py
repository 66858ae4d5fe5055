"""Compares two versions of a CRD, to find what an upgrade of the CRD breaks.

When an object is written, the API server drops each field that the CRD does not have, and refuses a
value that a rule of the CRD forbids. The fields of pod templates come from Kubernetes, so they are
not compared.
"""

import operator
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from crd_generator.schema import Schema

POD_TEMPLATES: Final = ("template", "submitterPodTemplate")
"""Fields whose value is a pod template."""
_UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "minLength", "minItems", "minProperties")


class ChangeKind(StrEnum):
    """How a field differs between two versions of a CRD."""

    ADDED = "added"
    REMOVED = "removed"
    TYPE = "type"
    REQUIRED = "required"
    """The field was optional before."""
    RULE = "rule"
    """A validation rule of the field is new, or allows fewer values than before."""


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference of a field between two versions of a CRD."""

    path: str
    """Path from the root of the object, such as `spec.workerGroupSpecs.groupName`.

    List indices are left out.
    """
    kind: ChangeKind
    text: str = ""
    """The difference, such as `string, now integer`; empty for an added or removed field."""


def find_schema(definition: Mapping[str, Any]) -> Schema:
    """Return the schema of the version that etcd stores; empty if the CRD has no such version."""
    versions: list[Schema] = definition["spec"]["versions"]
    stored = next((version for version in versions if version.get("storage")), Schema())
    schema: Schema = stored.get("schema", {}).get("openAPIV3Schema", {})
    return schema


def list_fields(schema: Schema) -> dict[str, Schema]:
    """Return the schema of each field by its path. Fields of pod templates are left out."""
    return dict(_walk(schema, ""))


def _walk(schema: Schema, prefix: str) -> Iterator[tuple[str, Schema]]:
    for name, field in _properties(schema).items():
        path = f"{prefix}.{name}" if prefix else name
        yield path, field
        if name not in POD_TEMPLATES:
            yield from _walk(field, path)


def _inner(schema: Schema) -> Schema:
    """Return the schema of the elements of a list or map; the schema itself for other types."""
    inner: Any = schema.get("items") or schema.get("additionalProperties")
    return cast("Schema", inner) if isinstance(inner, dict) else schema


def _properties(schema: Schema) -> dict[str, Schema]:
    return _inner(schema).get("properties") or {}


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[FieldChange]:
    """Return the changes of the fields in `spec` and `status` of a CRD.

    If a whole field is added or removed, the fields inside it are not reported separately.
    """
    old, new = (find_schema(definition) for definition in (before, after))
    return [
        change
        for part in ("spec", "status")
        for change in _compare(_properties(old).get(part, {}), _properties(new).get(part, {}), part)
    ]


def find_lost_versions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the versions of stored objects (`status.storedVersions`) that `after` lacks.

    The API server refuses a CRD that lacks one of these versions.
    """
    stored: list[str] = before.get("status", {}).get("storedVersions", [])
    known = {version["name"] for version in after["spec"]["versions"]}
    return [version for version in stored if version not in known]


def _compare(before: Schema, after: Schema, path: str) -> Iterator[FieldChange]:
    if (change := _compare_type(before, after, path)) is not None:
        yield change
        return
    yield from _compare_rules(before, after, path)
    if _inner(before) is not before and _inner(after) is not after:
        yield from _compare_rules(_inner(before), _inner(after), path)
    if path.rpartition(".")[2] in POD_TEMPLATES:
        return
    old, new = _properties(before), _properties(after)
    was_required: list[str] = _inner(before).get("required", [])
    for name in _inner(after).get("required", []):
        if name in new and name not in was_required:
            yield FieldChange(path=f"{path}.{name}", kind=ChangeKind.REQUIRED, text="now required")
    for name in sorted(old.keys() | new.keys()):
        inner = f"{path}.{name}"
        if name not in new:
            if not _keeps_unknown(after):
                yield FieldChange(path=inner, kind=ChangeKind.REMOVED)
        elif name not in old:
            yield FieldChange(path=inner, kind=ChangeKind.ADDED)
        else:
            yield from _compare(old[name], new[name], inner)


def _keeps_unknown(schema: Schema) -> bool:
    """Return whether the API server keeps fields that the schema does not have."""
    return bool(_inner(schema).get("x-kubernetes-preserve-unknown-fields"))


def _compare_type(before: Schema, after: Schema, path: str) -> FieldChange | None:
    old, new = _describe_type(before), _describe_type(after)
    if old == new:
        return None
    return FieldChange(path=path, kind=ChangeKind.TYPE, text=f"{old}, now {new}")


def _describe_type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind: str = schema.get("type", "any")
    if kind == "array":
        return f"array of {_describe_type(schema.get('items', {}))}"
    return kind


def _compare_rules(before: Schema, after: Schema, path: str) -> Iterator[FieldChange]:
    for text in _describe_narrowed(before, after):
        yield FieldChange(path=path, kind=ChangeKind.RULE, text=text)


def _describe_narrowed(before: Schema, after: Schema) -> Iterator[str]:
    """Yield one text for each validation rule of `after` that is new, or stricter than before."""
    old_values, new_values = before.get("enum"), after.get("enum")
    if new_values is not None and old_values != new_values:
        lost = [value for value in old_values or () if value not in new_values]
        if old_values is None:
            yield f"now one of {', '.join(map(str, new_values))}"
        elif lost:
            yield f"no longer {', '.join(map(str, lost))}"
    for names, is_narrower in ((_UPPER, operator.lt), (_LOWER, operator.gt)):
        for name in names:
            old, new = before.get(name), after.get(name)
            if new is not None and (old is None or is_narrower(new, old)):
                yield f"{name} {'none' if old is None else old}, now {new}"
    pattern = after.get("pattern")
    if pattern is not None and pattern != before.get("pattern"):
        yield f"now with the pattern {pattern}"
    known = [rule["rule"] for rule in before.get("x-kubernetes-validations", [])]
    for rule in after.get("x-kubernetes-validations", []):
        if rule["rule"] not in known:
            yield f"now with the rule: {rule.get('message', rule['rule'])}"


def is_set(document: Any, path: str) -> bool:
    """Return whether an object has the field at `path`.

    If the path leads through a list, one element with the field suffices.
    """
    name, _, rest = path.partition(".")
    return any(
        name in body and (not rest or is_set(body[name], rest)) for body in _objects(document)
    )


def is_missing(document: Any, path: str) -> bool:
    """Return whether an object has the parent of the field at `path`, but not the field.

    If the path leads through a list, one such element suffices.
    """
    name, _, rest = path.partition(".")
    if not rest:
        return any(name not in body for body in _objects(document))
    return any(name in body and is_missing(body[name], rest) for body in _objects(document))


def _objects(document: Any) -> list[dict[str, Any]]:
    """Return the objects in `document` if it is a list, or `[document]` if it is an object."""
    values: list[Any] = cast("list[Any]", document) if isinstance(document, list) else [document]
    return [value for value in values if isinstance(value, dict)]
