"""Applies CRDs as the API server does: removes unknown fields, and refuses invalid values.

Expressions (CEL) are left out.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import yaml

from common.api.opaque import Json

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CRDS: Final = Path(__file__).parents[2] / "deploy" / "crds"
_FILES: Final = {
    "RayCluster": "ray.io_rayclusters.yaml",
    "RayService": "ray.io_rayservices.yaml",
    "RayJob": "ray.io_rayjobs.yaml",
    "RayCronJob": "ray.io_raycronjobs.yaml",
}
_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_TYPES: Final = {"object": dict, "array": list, "string": str, "boolean": bool}


@lru_cache
def of(kind: str, part: str = "spec", folder: Path = CRDS) -> Json:
    """Return the schema of a kind's spec, or of its status, from the CRDs in a folder."""
    crd = yaml.load((folder / _FILES[kind]).read_text(), _LOADER)  # noqa: S506  (a safe one)
    version = next(each for each in crd["spec"]["versions"] if each["name"] == "v1")
    return version["schema"]["openAPIV3Schema"]["properties"][part]


def pruned(value: Any, schema: Json) -> Any:
    """Return a value without the fields that a schema does not name."""
    if isinstance(value, list):
        return [pruned(each, schema.get("items", {})) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields: Json = schema.get("properties", {})
    rest = schema.get("additionalProperties")
    is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
    kept: Json = {}
    for name, each in cast("Json", value).items():
        if name in fields:
            kept[name] = pruned(each, fields[name])
        elif isinstance(rest, dict):
            kept[name] = pruned(each, cast("Json", rest))
        elif is_open or rest:
            kept[name] = each
    return kept


def refusal(value: Any, schema: Json, where: str = "spec") -> str | None:
    """Return why the API server refuses a value, None when it admits it."""
    if value is None:
        return None if schema.get("nullable") else f"{where} is null"
    if (problem := _of_type(value, schema)) is not None:
        return f"{where} {problem}"
    if isinstance(value, dict):
        return _of_fields(cast("Json", value), schema, where)
    if isinstance(value, list):
        return _of_items(cast("list[Any]", value), schema, where)
    return None


def _of_type(value: Any, schema: Json) -> str | None:
    if schema.get("x-kubernetes-int-or-string"):
        is_good = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
        return _of_text(value, schema) if is_good else "is neither an integer nor a string"
    match schema.get("type"):
        case "integer":
            is_good = isinstance(value, int) and not isinstance(value, bool)
            return _of_number(value, schema) if is_good else "is no integer"
        case "number":
            is_good = isinstance(value, int | float) and not isinstance(value, bool)
            return _of_number(value, schema) if is_good else "is no number"
        case None:
            return None
        case kind:
            return _of_text(value, schema) if isinstance(value, _TYPES[kind]) else f"is no {kind}"


def _of_number(value: float, schema: Json) -> str | None:
    least, most = _RANGES.get(schema.get("format", ""), (float("-inf"), float("inf")))
    least, most = max(least, schema.get("minimum", least)), min(most, schema.get("maximum", most))
    return None if least <= value <= most else f"is not between {least} and {most}"


def _of_text(value: Any, schema: Json) -> str | None:
    if "enum" in schema and value not in schema["enum"]:
        return "is none of the values that are allowed"
    if not isinstance(value, str):
        return None
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return "is too long or too short"
    pattern = schema.get("pattern")
    return None if pattern is None or re.search(pattern, value) else f"does not match {pattern}"


def _of_fields(value: Json, schema: Json, where: str) -> str | None:
    missing = [each for each in schema.get("required", []) if each not in value]
    if missing:
        return f"{where}.{missing[0]} is missing"
    fields: Json = schema.get("properties", {})
    rest = schema.get("additionalProperties")
    for name, each in value.items():
        inner = fields.get(name, rest if isinstance(rest, dict) else {})
        if (problem := refusal(each, cast("Json", inner), f"{where}.{name}")) is not None:
            return problem
    return None


def _of_items(value: list[Any], schema: Json, where: str) -> str | None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{where} has too many or too few items"
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if keys and len(
        {
            tuple(str(cast("Json", each).get(key)) for key in keys)
            for each in value
            if isinstance(each, dict)
        }
    ) < len(value):
        return f"{where} has two items of one key"
    for number, each in enumerate(value):
        if (problem := refusal(each, schema.get("items", {}), f"{where}[{number}]")) is not None:
            return problem
    return None
