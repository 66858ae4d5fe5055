"""Removes confidential values from objects: environment variables, Secrets, passwords, tokens.

Names and structure stay, because a bug hides in them. A field with the name of a secret is one.
"""

import re
from typing import Any, Final, cast

import yaml

from common.api.opaque import Json

REMOVED: Final = "(removed)"
_SECRET_NAMES: Final = re.compile(
    r"passw|token|secret|credential|api_?-?key|private_?-?key|authorization", re.IGNORECASE
)
_REFERENCES: Final = {
    "secretName",
    "secretRef",
    "secretKeyRef",
    "imagePullSecrets",
    "automountServiceAccountToken",
}
"""Names of objects and switches, which hold no secret."""
_DATA: Final = {"data", "stringData", "binaryData"}
_ENV_MAPS: Final = {"env_vars"}
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_FLAG: Final = r"(?<!\w)--?[\w-]*(?:passw|token|secret|key)[\w-]*"
_ARGUMENT: Final = re.compile(rf"({_FLAG}[= ]|\b\w*(?:PASSW|TOKEN|SECRET|KEY)\w*=)(\S+)")
_FLAG_ALONE: Final = re.compile(_FLAG)
_IN_URL: Final = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")


def obj(body: Json) -> Json:
    """Return an object without secrets."""
    found = cast("Json", _value(body, ()))
    if body.get("kind") in {"Secret", "ConfigMap"}:
        found |= {key: dict.fromkeys(body[key] or {}, REMOVED) for key in _DATA if key in body}
    annotations: Json = found.get("metadata", {}).get("annotations") or {}
    annotations.pop(_LAST_APPLIED, None)
    found.get("metadata", {}).pop("managedFields", None)
    return found


def text(line: str) -> str:
    """Return a line of a log or of a command without passwords."""
    return _IN_URL.sub(rf"\1{REMOVED}@", _ARGUMENT.sub(rf"\1{REMOVED}", line))


def _value(value: object, path: tuple[str, ...]) -> object:
    key = path[-1] if path else ""
    if isinstance(value, dict):
        return _mapping(cast("dict[str, Any]", value), path)
    if isinstance(value, list):
        return _items(cast("list[object]", value), path)
    if isinstance(value, str) and key == "serveConfigV2":
        return _serve_config(value)
    if isinstance(value, str):
        return REMOVED if _is_secret(path) else text(value)
    return value


def _items(values: list[object], path: tuple[str, ...]) -> list[object]:
    """Return a list; in a command a flag that means a secret may stand before its value."""
    found: list[object] = []
    for before, each in zip(["", *values], values, strict=False):
        is_value = (
            isinstance(before, str)
            and isinstance(each, str)
            and _FLAG_ALONE.fullmatch(before) is not None
        )
        found.append(REMOVED if is_value else _value(each, path))
    return found


def _mapping(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    key = path[-1] if path else ""
    if key in _ENV_MAPS:
        return dict.fromkeys(value, REMOVED)
    is_env = "name" in value and "value" in value and key in {"env", ""}
    found = {name: _value(each, (*path, name)) for name, each in value.items()}
    if is_env:
        found["value"] = REMOVED
    return found


def _is_secret(path: tuple[str, ...]) -> bool:
    """Return whether a text stands below a name that means a secret, such as `redisPassword.value`."""
    if any(part in _REFERENCES for part in path):
        return False
    return any(_SECRET_NAMES.search(part) for part in path[-2:])


def _serve_config(config: str) -> str:
    try:
        read: object = yaml.safe_load(config)
    except (yaml.YAMLError, RecursionError, ValueError):
        return REMOVED
    return yaml.safe_dump(_value(read, ("serve",)), sort_keys=False)
