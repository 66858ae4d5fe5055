"""`serveConfigV2`: YAML as the user wrote it → the JSON object that Ray's dashboard takes.

YAML 1.1 as KubeRay reads it (spec rayservice §12.4): keys become strings, whole numbers stay whole, a date stays the text
that it was. A document that is not a mapping, or that grows without bound through aliases, is refused with one line.
"""

from functools import lru_cache
from typing import Any, Final, cast

import yaml

from common import errors
from common.api.opaque import Json
from common.ray.serve_status import DEFAULT_APP

LARGEST: Final = 200_000
"""Values in one config; the API server's own limit on an object keeps honest ones far below."""


class _Loader(yaml.SafeLoader):
    """The safe loader without its idea of dates: JSON has none."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def is_empty(text: str) -> bool:
    """Tell whether a config asks for nothing at all, so that there is nothing to send."""
    return not text.strip()


def to_json(text: str) -> Json:
    """Return the config as a JSON object; `InvalidSpec` says in one line what is wrong."""
    try:
        parsed: object = yaml.load(text, _Loader)  # noqa: S506  (a subclass of the safe loader)
    except yaml.MarkedYAMLError as problem:
        where = f", line {problem.problem_mark.line + 1}" if problem.problem_mark else ""
        raise errors.InvalidSpec(f"spec.serveConfigV2 is not YAML{where}: {problem.problem}") from problem
    except (yaml.YAMLError, ValueError) as problem:
        raise errors.InvalidSpec(f"spec.serveConfigV2 is not YAML: {_one_line(problem)}") from problem
    except RecursionError as problem:
        raise errors.InvalidSpec("spec.serveConfigV2 is nested too deeply") from problem
    if not isinstance(parsed, dict):
        raise errors.InvalidSpec("spec.serveConfigV2 must be a mapping with the key 'applications'")
    return cast("Json", _Plain().convert(cast("object", parsed)))


@lru_cache(maxsize=1024)
def applications(text: str) -> frozenset[str]:
    """Return the names of the applications that a config asks for; none where it cannot be read."""
    try:
        apps: object = to_json(text).get("applications")
    except errors.InvalidSpec:
        return frozenset()
    if not isinstance(apps, list):
        return frozenset()
    named = [cast("Json", each) for each in cast("list[object]", apps) if isinstance(each, dict)]
    return frozenset(str(each.get("name") or DEFAULT_APP) for each in named)


@lru_cache(maxsize=1024)
def target_capacity(text: str) -> float:
    """Return the capacity, in percent, that a config by itself asks for."""
    try:
        asked: object = to_json(text).get("target_capacity")
    except errors.InvalidSpec:
        return 100.0
    return float(asked) if isinstance(asked, int | float) else 100.0


class _Plain:
    """Turns what YAML may hold into what JSON may hold, counting as it goes."""

    def __init__(self) -> None:
        self._left = LARGEST

    def convert(self, value: object) -> Any:
        self._left -= 1
        if self._left < 0:
            raise errors.InvalidSpec(f"spec.serveConfigV2 holds more than {LARGEST} values")
        match value:
            case dict():
                return {_key(key): self.convert(each) for key, each in cast("dict[object, object]", value).items()}
            case list() | tuple() | set():
                return [self.convert(each) for each in cast("list[object]", value)]
            case bytes():
                return value.decode(errors="replace")
            case _:
                return value


def _key(key: object) -> str:
    match key:
        case bool():
            return "true" if key else "false"
        case None:
            return "null"
        case _:
            return str(key)


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())
