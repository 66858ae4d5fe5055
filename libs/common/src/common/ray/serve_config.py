"""Convert `serveConfigV2` (YAML as the user wrote it) to the JSON object for Ray's dashboard.

`go_yaml` parses the YAML as KubeRay does. A document is rejected with a one-line reason if it is
not a mapping, too large, too deep, or expanded too much by aliases. A long config takes up to a
second, so `serve_config_cache` parses it in a thread before a reconcile decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec

from common import errors
from common.api.opaque import Json
from common.api.ray_service import MAX_SERVE_CONFIG
from common.ray import go_yaml
from common.ray.go_yaml import NotYamlError
from common.ray.serve_status import DEFAULT_APP

_FIELD: Final = "spec.serveConfigV2"


class ServeConfig(msgspec.Struct, frozen=True):
    """A parsed Serve config, or the reason why a text is not one."""

    json: bytes = b""
    problem: str | None = None
    """Why the config cannot be sent; `json` is empty then. None if the config can be sent."""
    applications: frozenset[str] = frozenset()
    """Names of the applications in the config; empty if it cannot be read."""
    routed: frozenset[str] = frozenset()
    """Names of the applications with a route prefix; Ray's proxies send requests only to these."""
    target_capacity: float = 100.0
    """The `target_capacity` of the config, in percent."""

    def to_json(self) -> Json:
        """Return the config as a JSON object; raises `InvalidSpec` with a one-line reason."""
        if self.problem is not None:
            raise errors.InvalidSpec(self.problem)
        return msgspec.json.decode(self.json)


ParsedConfigs = Mapping[str, ServeConfig]
"""Serve configs that are parsed already, by their YAML text."""


def is_empty(text: str) -> bool:
    """Return whether a Serve config is blank, so that there is nothing to send."""
    return not text.strip()


def parse(text: str) -> ServeConfig:
    """Parse a Serve config; the result has a `problem` if it cannot be sent."""
    if len(text) > MAX_SERVE_CONFIG:
        return ServeConfig(
            problem=f"{_FIELD} has {len(text)} characters, more than {MAX_SERVE_CONFIG}; make it "
            "shorter"
        )
    try:
        config: object = go_yaml.load(text)
    except NotYamlError as wrong:
        return ServeConfig(problem=f"{_FIELD} cannot be read as YAML: {wrong}")
    if not isinstance(config, dict):
        return ServeConfig(problem=f"{_FIELD} must be a mapping with the key 'applications'")
    known = cast("Json", config)
    capacity: object = known.get("target_capacity")
    apps: object = known.get("applications")
    named = cast("list[object]", apps) if isinstance(apps, list) else []
    listed = [cast("Json", app) for app in named if isinstance(app, dict)]
    return ServeConfig(
        json=msgspec.json.encode(known),
        applications=_names(listed),
        routed=_names(app for app in listed if app.get("route_prefix", "/") is not None),
        target_capacity=float(capacity) if isinstance(capacity, int | float) else 100.0,
    )


def _names(applications: Iterable[Json]) -> frozenset[str]:
    return frozenset(str(app.get("name") or DEFAULT_APP) for app in applications)


def get(text: str, parsed: ParsedConfigs) -> ServeConfig:
    """Return the Serve config with this text from `parsed`, or parse the text now."""
    return parsed.get(text) or parse(text)
