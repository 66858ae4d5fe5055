"""The ports that a head's first container offers, as Services name them (spec rayservice §10.1, §10.2)."""

from typing import Any, Final, cast

from common import ports
from common.api.opaque import Body, Json

GRPC: Final = "serve-grpc"
"""The name of the port through which Serve takes gRPC calls."""


def of_head(config: Json) -> dict[str, int]:
    """Return name → number; Ray's five defaults when the container declares none."""
    template = cast("Json", _at(config, "headGroupSpec", "template", "spec"))
    containers = cast("list[Json]", template.get("containers") or [{}])
    declared = cast("list[Json]", containers[0].get("ports") or [])
    if not declared:
        return dict(ports.HEAD_DEFAULTS)
    return {each.get("name") or f"{each['containerPort']}-port": each["containerPort"] for each in declared}


def of_serve(config: Json) -> list[Body]:
    """Return the ports through which Serve takes requests, by name."""
    found = of_head(config)
    names = sorted(name for name in found if name == "serve" or name.startswith("serve-"))
    return [{"name": name, "port": found[name]} for name in names]


def of_grpc(config: Json) -> int | None:
    """Return the port through which Serve takes gRPC calls, None without one (spec rayservice §9.6)."""
    return of_head(config).get(GRPC)


def head_group(config: Json) -> Json:
    """Return `headGroupSpec`."""
    return cast("Json", _at(config, "headGroupSpec"))


def _at(config: Json, *path: str) -> Any:
    found: Any = config
    for part in path:
        found = found.get(part) or {}
    return found
