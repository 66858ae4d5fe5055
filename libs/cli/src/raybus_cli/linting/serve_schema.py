"""Checks a Serve config field by field, as Ray Serve's `ServeDeploySchema` does.

Serve converts texts to numbers and back, and ignores unknown fields. Its versions differ: a value
is an error if both Ray 2.52 and Ray 2.60 refuse it, and gets advice if only one of them does.
"""

import difflib
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Final, cast

import msgspec

from common import errors, untrusted
from common.api.opaque import Json
from common.ray import serve_config
from common.ray.serve_status import DEFAULT_APP
from raybus_cli.manifests import FieldPath, format_path


class LintLevel(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """The manifest would be rejected, or the field would not have its apparent effect."""
    ADVICE = "advice"
    """The manifest works, but another value would be better."""


class LintFinding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A finding about one field."""

    file: str
    line: int
    level: LintLevel
    field: str
    text: str


Verdict = tuple[LintLevel, FieldPath, str]
"""Severity, path below `serveConfigV2`, and text of a finding."""
REQUIRED: Final = "Required value"


class FieldType(StrEnum):
    """Types of fields; the values are phrases for messages."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    MAPPING = "a mapping"
    LIST = "a list"
    ANY = "any value"


class Field(msgspec.Struct, frozen=True):
    """The type and range of a field.

    A number must be at least `least` and more than `above`, if these limits are set.
    """

    kind: FieldType = FieldType.ANY
    least: float | None = None
    above: float | None = None
    is_required: bool = False


_TEXT, _WHOLE, _NUMBER = Field(FieldType.TEXT), Field(FieldType.WHOLE), Field(FieldType.NUMBER)
_MAPPING, _LIST, _ANY = Field(FieldType.MAPPING), Field(FieldType.LIST), Field()
_SPAN, _AMOUNT = Field(FieldType.NUMBER, above=0), Field(FieldType.NUMBER, least=0)

_CONFIG: Final = {
    "proxy_location": _ANY,
    "http_options": _MAPPING,
    "grpc_options": _MAPPING,
    "logging_config": _MAPPING,
    "applications": Field(FieldType.LIST, is_required=True),
    "target_capacity": _ANY,
}
_HTTP: Final = {
    **dict.fromkeys(
        (
            "host",
            "root_path",
            "ssl_keyfile",
            "ssl_certfile",
            "ssl_keyfile_password",
            "ssl_ca_certs",
        ),
        _TEXT,
    ),
    "port": _WHOLE,
    "request_timeout_s": _NUMBER,
    "keep_alive_timeout_s": _WHOLE,
}
_GRPC: Final = {"port": _WHOLE, "grpc_servicer_functions": _LIST, "request_timeout_s": _NUMBER}
_APPLICATION: Final = {
    "name": _TEXT,
    "route_prefix": _TEXT,
    "import_path": Field(FieldType.TEXT, is_required=True),
    "runtime_env": _MAPPING,
    "host": _TEXT,
    "port": _WHOLE,
    "deployments": _LIST,
    "autoscaling_policy": _MAPPING,
    "args": _MAPPING,
    "logging_config": _MAPPING,
    "external_scaler_enabled": _ANY,
}
_DEPLOYMENT: Final = {
    "name": Field(FieldType.TEXT, is_required=True),
    "num_replicas": _ANY,
    "max_ongoing_requests": Field(FieldType.WHOLE, above=0),
    "max_queued_requests": _WHOLE,
    "user_config": _ANY,
    "autoscaling_config": _MAPPING,
    "graceful_shutdown_wait_loop_s": _AMOUNT,
    "graceful_shutdown_timeout_s": _AMOUNT,
    "health_check_period_s": _SPAN,
    "health_check_timeout_s": _SPAN,
    "ray_actor_options": _MAPPING,
    "placement_group_bundles": _LIST,
    "placement_group_strategy": _TEXT,
    "max_replicas_per_node": _WHOLE,
    "logging_config": _MAPPING,
    **dict.fromkeys(
        (
            "request_router_config",
            "backpressure_config",
            "deployment_actors",
            "gang_scheduling_config",
            "max_surge_percent",
            "placement_group_bundle_label_selector",
            "placement_group_fallback_strategy",
            "rolling_update_percentage",
        ),
        _ANY,
    ),
}
_ACTOR: Final = {
    "runtime_env": _MAPPING,
    **dict.fromkeys(("num_cpus", "num_gpus", "memory"), _AMOUNT),
    "object_store_memory": _ANY,
    "resources": _MAPPING,
    "accelerator_type": _TEXT,
    "label_selector": _ANY,
    "fallback_strategy": _ANY,
}
_PROXIES: Final = ("Disabled", "HeadOnly", "EveryNode")
_TYPES: Final[dict[FieldType, type]] = {
    FieldType.TEXT: str,
    FieldType.MAPPING: dict,
    FieldType.LIST: list,
}
_NO_LIMIT: Final = -1


def check_config(text: str) -> Iterator[Verdict]:
    """Yield the findings in a Serve config; none if it is empty or not valid YAML."""
    if serve_config.is_empty(text):
        return
    try:
        config = serve_config.parse(text).to_json()
    except errors.InvalidSpec:
        return
    yield from _check_fields(config, _CONFIG, ())
    yield from _check_top(config)
    for key, known in (("http_options", _HTTP), ("grpc_options", _GRPC)):
        if isinstance(config.get(key), dict):
            yield from _check_fields(cast("Json", config[key]), known, (key,))
    applications = _select_mappings(config.get("applications"))
    for at, application in applications:
        yield from _check_application(application, ("applications", at))
    yield from _check_duplicates(applications, "name", DEFAULT_APP)
    yield from _check_duplicates(applications, "route_prefix", "/")


MAX_SHOWN_CONFIG: Final = 64 * 2**10
"""Longest Serve config, in characters, that is still checked each time its object is shown.

Checking the costliest config of this length takes half a second.
"""
MAX_FIELDS: Final = 20
MAX_FIELD_LENGTH: Final = 500
"""Maximum length of the text about one refused field, in characters; it may quote a long value."""


def summarize_refused_fields(text: str) -> tuple[str, ...]:
    """Return the fields that Serve refuses, each with its reason, for a view of many objects.

    The result is empty for a config of more than `MAX_SHOWN_CONFIG` characters, because the check
    would take seconds. The view then shows Ray's own error message.
    """
    return list_refused_fields(text) if len(text) <= MAX_SHOWN_CONFIG else ()


@lru_cache(maxsize=64)
def list_refused_fields(text: str) -> tuple[str, ...]:
    """Return the first `MAX_FIELDS` fields that Serve refuses, each with its reason.

    An entry reads `applications[0].import_path: Required value`.
    """
    refused = (
        untrusted.clipped(f"{format_path(path)}: {why}", MAX_FIELD_LENGTH)
        for level, path, why in check_config(text)
        if level is LintLevel.ERROR
    )
    return tuple(islice(refused, MAX_FIELDS))


def _check_top(config: Json) -> Iterator[Verdict]:
    proxies = config.get("proxy_location")
    if isinstance(proxies, str) and proxies not in _PROXIES:
        yield (
            LintLevel.ERROR,
            ("proxy_location",),
            f"Unsupported value: {proxies!r}; supported: {', '.join(_PROXIES)}",
        )
    capacity = config.get("target_capacity")
    if isinstance(capacity, int | float) and not 0 <= capacity <= 100:
        yield (
            LintLevel.ADVICE,
            ("target_capacity",),
            f"Invalid value: {capacity}: Serve takes 0 to 100",
        )
    for at, application in enumerate(_get_items(config.get("applications"))):
        if not isinstance(application, dict):
            yield _build_not_a_mapping(application, ("applications", at))


def _check_application(application: Json, path: FieldPath) -> Iterator[Verdict]:
    yield from _check_fields(application, _APPLICATION, path)
    for key in ("host", "port"):
        if key in application:
            yield (
                LintLevel.ADVICE,
                (*path, key),
                f"Serve refuses it in an application; set http_options.{key}",
            )
    if application.get("name") == "":
        yield LintLevel.ERROR, (*path, "name"), REQUIRED
    imported, prefix = application.get("import_path"), application.get("route_prefix")
    if isinstance(imported, str) and (why := _find_import_path_violation(imported)):
        yield LintLevel.ERROR, (*path, "import_path"), f"Invalid value: {imported!r}: {why}"
    if isinstance(prefix, str) and (
        why := _find_prefix_violation(prefix)
    ):  # Serve accepts the config, and the application fails
        yield LintLevel.ADVICE, (*path, "route_prefix"), f"Invalid value: {prefix!r}: {why}"
    for at, deployment in enumerate(_get_items(application.get("deployments"))):
        below = (*path, "deployments", at)
        if isinstance(deployment, dict):
            yield from _check_deployment(cast("Json", deployment), below)
        else:
            yield _build_not_a_mapping(deployment, below)


def _check_deployment(deployment: Json, path: FieldPath) -> Iterator[Verdict]:
    yield from _check_fields(deployment, _DEPLOYMENT, path)
    replicas, scaling = deployment.get("num_replicas"), deployment.get("autoscaling_config")
    if replicas is not None and replicas != "auto":
        count = _parse_number(replicas)
        if count is None or not count.is_integer():
            level = LintLevel.ERROR if count is None else LintLevel.ADVICE
            yield (
                level,
                (*path, "num_replicas"),
                f"Invalid value: {replicas!r}: must be a whole number or auto",
            )
        elif count < 1:
            yield (
                LintLevel.ERROR,
                (*path, "num_replicas"),
                f"Invalid value: {replicas!r}: must be at least 1",
            )
        elif scaling is not None:
            yield (
                LintLevel.ERROR,
                (*path, "num_replicas"),
                "Forbidden: autoscaling_config is set; remove one of the two",
            )
    queued = deployment.get("max_queued_requests")
    if isinstance(queued, int) and queued < 1 and queued != _NO_LIMIT:
        why = f"must be at least 1, or {_NO_LIMIT} for no limit"
        yield LintLevel.ERROR, (*path, "max_queued_requests"), f"Invalid value: {queued}: {why}"
    if (
        deployment.get("max_replicas_per_node") is not None
        and deployment.get("placement_group_bundles") is not None
    ):
        yield (
            LintLevel.ERROR,
            (*path, "max_replicas_per_node"),
            "Forbidden: placement_group_bundles is set; remove one",
        )
    options = deployment.get("ray_actor_options")
    if isinstance(options, dict):
        yield from _check_fields(cast("Json", options), _ACTOR, (*path, "ray_actor_options"))


def _check_fields(mapping: Json, known: dict[str, Field], path: FieldPath) -> Iterator[Verdict]:
    for key, field in known.items():
        if field.is_required and mapping.get(key) is None:
            yield LintLevel.ERROR, (*path, key), REQUIRED
    for key, value in mapping.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield LintLevel.ADVICE, (*path, key), f"Unknown field, which Serve ignores{hint}"
        elif value is not None and (wrong := _find_violation(value, known[key])) is not None:
            level, why = wrong
            shown = "" if "password" in key else f" {format_value(value)}:"
            yield level, (*path, key), f"Invalid value:{shown} {why}"


def _find_violation(value: object, field: Field) -> tuple[LintLevel, str] | None:
    """Return severity and reason if a value has the wrong type or is out of range, else None."""
    if field.kind in {FieldType.WHOLE, FieldType.NUMBER}:
        return _find_number_violation(value, field)
    kind = _TYPES.get(field.kind, object)
    if isinstance(value, kind):
        return None
    is_converted = (kind is str and not isinstance(value, dict | list)) or (
        kind is dict and (isinstance(value, list) or value == "")
    )
    return (LintLevel.ADVICE if is_converted else LintLevel.ERROR), f"must be {field.kind}"


def _find_number_violation(value: object, field: Field) -> tuple[LintLevel, str] | None:
    number = _parse_number(value)
    if number is None:
        return LintLevel.ERROR, f"must be {field.kind}"
    if field.kind is FieldType.WHOLE and not number.is_integer():
        return LintLevel.ADVICE, f"must be {field.kind}"
    if field.least is not None and number < field.least:
        return LintLevel.ERROR, f"must be at least {field.least:g}"
    if field.above is not None and number <= field.above:
        return LintLevel.ERROR, f"must be more than {field.above:g}"
    return None


def _parse_number(value: object) -> float | None:
    """Convert a value to a number as Serve does; None if that is impossible."""
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _find_import_path_violation(value: str) -> str:
    """Return what is wrong with an import path; empty if nothing is wrong."""
    parts = value.split(":") if ":" in value else value.split(".")
    if len(parts) == 1 or (":" in value and len(parts) > 2):
        return "must have the form module:name or module.name"
    return "" if parts[0] and parts[-1] else "must not start or end with a separator"


def _find_prefix_violation(value: str) -> str:
    """Return what is wrong with a route prefix; empty if nothing is wrong."""
    if not value.startswith("/"):
        return "must start with /"
    if value != "/" and value.endswith("/"):
        return "must not end with /"
    return "must not contain { or }" if "{" in value or "}" in value else ""


def _check_duplicates(
    applications: list[tuple[int, Json]], key: str, default: str
) -> Iterator[Verdict]:
    """Yield a finding for each application with the same `key` as an earlier application.

    If an application lacks the key, it has the value `default`. null is ignored.
    """
    seen: set[str] = set()
    for at, application in applications:
        value = application.get(key, default)
        if isinstance(value, str):
            if value in seen:
                hint = "" if key in application else f", the default; set {key}"
                yield (
                    LintLevel.ERROR,
                    ("applications", at, key),
                    f"Duplicate value: {value!r}{hint}",
                )
            seen.add(value)


def _get_items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _select_mappings(value: object) -> list[tuple[int, Json]]:
    return [
        (at, cast("Json", item))
        for at, item in enumerate(_get_items(value))
        if isinstance(item, dict)
    ]


def _build_not_a_mapping(value: object, path: FieldPath) -> Verdict:
    shown = format_value(value)
    level = LintLevel.ADVICE if shown == FieldType.LIST else LintLevel.ERROR
    return level, path, f"Invalid value: {shown}: must be {FieldType.MAPPING}"


def format_value(value: object) -> str:
    """Format a value for a message; a mapping or list is shown only as its type."""
    return (
        FieldType.MAPPING
        if isinstance(value, dict)
        else FieldType.LIST
        if isinstance(value, list)
        else repr(value)
    )
