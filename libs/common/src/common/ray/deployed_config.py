"""Compare a Serve config with the one that Serve reports as deployed (`deployed_app_config`).

As soon as Ray accepts a PUT, it reports the options that were set for each application. It drops
keys that its schema does not know, converts numbers to floats, and rewrites `logging_config`. So
the comparison skips options that Ray does not report unchanged, and treats values as equal if Ray's
schema does. Capacity, and the options that are fixed when Serve starts (`http_options`,
`grpc_options`, `proxy_location`), are not compared.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, cast

import msgspec

from common import errors
from common.api.opaque import Json
from common.ray import serve_status
from common.ray.serve_config import ServeConfig
from common.ray.serve_status import DEFAULT_APP, AppState, ServeDetails

REDACTED: Final = "<redacted>"
"""Text that Ray's dashboard shows instead of the value of an environment variable."""
_APPLICATION: Final = frozenset(
    {
        "route_prefix",
        "import_path",
        "runtime_env",
        "args",
        "autoscaling_policy",
        "external_scaler_enabled",
    }
)
_DEPLOYMENT: Final = frozenset(
    {"autoscaling_config", "backpressure_config", "deployment_actors", "gang_scheduling_config"}
    | {"graceful_shutdown_timeout_s", "graceful_shutdown_wait_loop_s", "health_check_period_s"}
    | {
        "max_ongoing_requests",
        "max_queued_requests",
        "max_replicas_per_node",
        "max_surge_percent",
        "num_replicas",
    }
    | {
        "placement_group_bundle_label_selector",
        "placement_group_bundles",
        "placement_group_strategy",
    }
    | {
        "health_check_timeout_s",
        "request_router_config",
        "rolling_update_percentage",
        "user_config",
    }
)
_ACTOR: Final = frozenset(
    {"accelerator_type", "fallback_strategy", "label_selector", "memory", "num_cpus", "num_gpus"}
    | {"resources", "runtime_env"}
)
"""Options of a deployment's actors that Ray 2.60 reports if they are set.

`_APPLICATION` and `_DEPLOYMENT` are the same for applications and deployments. All other options
are compared only if Ray reports them.
"""


def differences(config: ServeConfig, details: ServeDetails) -> list[str] | None:
    """Return the names of the options in which a Serve config differs from the deployed one.

    Their values are not returned, since they may be secrets. An application that Python code
    deployed has no config; it counts as a difference only if `config` has an application of the
    same name. None if `config` cannot be read, or if Serve reports no configs.
    """
    reported, wanted = configs(details), _applications(config)
    if wanted is None or not _reports(reported):
        return None
    by_config = {name: have for name, have in reported.items() if have is not None}
    differing: list[str] = []
    for name in sorted(wanted.keys() | by_config.keys()):
        have = by_config.get(name)
        if name not in wanted or have is None:
            differing.append(f"application {name}")
        else:
            differing += [
                f"application {name}: {option}" for option in _differences(wanted[name], have)
            ]
    return differing


def configs(details: ServeDetails) -> dict[str, Json | None]:
    """Return the reported config of each application by name.

    The config is None for an application that Python code deployed. Applications that Ray is
    deleting, because the last config does not have them, are left out.
    """
    return {
        name: app.deployed_app_config
        for name, app in details.named().items()
        if app.status != AppState.DELETING or app.deployed_app_config is not None
    }


def fingerprint(details: ServeDetails) -> str:
    """Return a digest of the application configs that Serve reports."""
    known = {name: config for name, config in configs(details).items() if config is not None}
    return hashlib.sha256(msgspec.json.encode(known, order="sorted")).hexdigest()


def _reports(configs: Mapping[str, Json | None]) -> bool:
    """Return whether Serve reports configs of its applications; old releases of Ray do not."""
    return not configs or any(config is not None for config in configs.values())


def reported(details: ServeDetails) -> str | None:
    """Return the Serve config that is deployed, built from the applications that have a config.

    None if no application has a config, or if a value is redacted.
    """
    apps = [config for _, config in sorted(configs(details).items()) if config is not None]
    if not apps or any(REDACTED in level for level in serve_status.levels(apps)):
        return None
    options = {
        "proxy_location": details.proxy_location,
        "http_options": details.http_options,
        "grpc_options": details.grpc_options,
        "applications": apps,
    }
    config: Json = {key: value for key, value in options.items() if value is not None}
    return msgspec.json.encode(config, order="sorted").decode()


def _applications(config: ServeConfig) -> dict[str, Json] | None:
    """Return the applications of a config by name; None if it cannot be read."""
    try:
        apps = msgspec.convert(config.to_json().get("applications"), list[Json])
    except (errors.InvalidSpec, msgspec.ValidationError):
        return None
    return {str(app.get("name") or DEFAULT_APP): app for app in apps}


def _differences(wanted: Json, have: Json) -> Iterator[str]:
    yield from _options(
        wanted, have, expected=_APPLICATION, ignored={"name", "deployments", "logging_config"}
    )
    first, second = _deployments(wanted), _deployments(have)
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            yield f"deployment {name}"
            continue
        pair = first[name], second[name]
        for option in _options(
            *pair, expected=_DEPLOYMENT, ignored={"name", "ray_actor_options", "logging_config"}
        ):
            yield f"deployment {name}: {option}"
        actors = (_mapping(deployment.get("ray_actor_options")) for deployment in pair)
        for option in _options(*actors, expected=_ACTOR, ignored=set()):
            yield f"deployment {name}: ray_actor_options.{option}"


def _deployments(app: Json) -> dict[str, Json]:
    """Return the deployments of an application by name; skip data of the wrong type."""
    value = app.get("deployments")
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return {str(deployment.get("name")): deployment for deployment in map(_mapping, listed)}


def _mapping(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _options(
    wanted: Json, have: Json, *, expected: frozenset[str], ignored: set[str]
) -> Iterator[str]:
    for key in sorted((wanted.keys() | have.keys()) - ignored):
        is_same = key in wanted and key in have and _equal(wanted[key], have[key])
        if (key in have or key in expected) and not is_same:
            yield key


def _equal(wanted: object, have: object) -> bool:
    match wanted, have:
        case dict(), dict():
            first, second = cast("Json", wanted), cast("Json", have)
            return all(
                _equal(first.get(key), second.get(key)) for key in first.keys() | second.keys()
            )
        case list(), list():
            items, others = cast("list[object]", wanted), cast("list[object]", have)
            return len(items) == len(others) and all(map(_equal, items, others))
        case _:
            return have in (REDACTED, wanted) or _scalar(wanted) == _scalar(have)


def _scalar(value: object) -> object:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    try:
        return float(cast("str", value))
    except (TypeError, ValueError, OverflowError):
        return str(value).lower()
