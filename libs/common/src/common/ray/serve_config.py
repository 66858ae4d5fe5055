"""Convert `serveConfigV2` (YAML as the user wrote it) to the JSON object for Ray's dashboard.

`go_yaml` parses it as KubeRay does. A document that is not a mapping, or is too large, too deep or
expands without limit through aliases, is rejected with a one-line reason. Results are cached while
there is room.
"""

import threading
from collections.abc import Iterable
from typing import Final, cast

import msgspec

from common import errors
from common.api.opaque import Json
from common.api.ray_service import MAX_SERVE_CONFIG
from common.ray import go_yaml
from common.ray.go_yaml import NotYamlError
from common.ray.serve_status import DEFAULT_APP
from common.runtime.cache import BoundedDict

_OVERHEAD: Final = 1_000
_FIELD: Final = "spec.serveConfigV2"


class Read(msgspec.Struct, frozen=True):
    """The result of parsing a config."""

    json: bytes = b""
    problem: str | None = None
    """Why the config cannot be sent; `json` is empty then."""
    applications: frozenset[str] = frozenset()
    """Names of the applications in the config; empty if it cannot be read."""
    routed: frozenset[str] = frozenset()
    """Names of the applications with a route prefix; Ray's proxies send requests only to these."""
    target_capacity: float = 100.0
    """The `target_capacity` of the config, in percent."""


_known: Final = BoundedDict[str, Read](
    size=lambda text, read: len(text) + len(read.json) + _OVERHEAD * (1 + len(read.applications))
)
_lock: Final = threading.Lock()
"""The event loop and the read-ahead thread both change `_known`."""


def is_empty(text: str) -> bool:
    """Return whether a config is blank, so that there is nothing to send."""
    return not text.strip()


def is_read(text: str) -> bool:
    """Return whether `read` returns at once, without parsing."""
    return len(text) > MAX_SERVE_CONFIG or text in _known


def read(text: str) -> Read:
    """Parse a config, or return the cached result.

    A long config takes a second to parse; `serve_api.read_ahead` does that in a thread.
    """
    if len(text) > MAX_SERVE_CONFIG:
        return Read(
            problem=f"{_FIELD} has {len(text)} characters, more than {MAX_SERVE_CONFIG}; make it "
            "shorter"
        )
    found = _known.get(text) or _read(text)
    with _lock:
        _known[text] = found
    return found


def _read(text: str) -> Read:
    try:
        config: object = go_yaml.load(text)
    except NotYamlError as wrong:
        return Read(problem=f"{_FIELD} cannot be read as YAML: {wrong}")
    if not isinstance(config, dict):
        return Read(problem=f"{_FIELD} must be a mapping with the key 'applications'")
    known = cast("Json", config)
    capacity: object = known.get("target_capacity")
    apps: object = known.get("applications")
    named = cast("list[object]", apps) if isinstance(apps, list) else []
    listed = [cast("Json", each) for each in named if isinstance(each, dict)]
    return Read(
        json=msgspec.json.encode(known),
        applications=_names(listed),
        routed=_names(each for each in listed if each.get("route_prefix", "/") is not None),
        target_capacity=float(capacity) if isinstance(capacity, int | float) else 100.0,
    )


def _names(applications: Iterable[Json]) -> frozenset[str]:
    return frozenset(str(each.get("name") or DEFAULT_APP) for each in applications)


def to_json(text: str) -> Json:
    """Return the config as a JSON object; raises `InvalidSpec` with a one-line reason."""
    found = read(text)
    if found.problem is not None:
        raise errors.InvalidSpec(found.problem)
    return msgspec.json.decode(found.json)
