"""Whether a cluster's Serve has the config already that would be sent to it: sending it again changes nothing. Pure.

Serve reports the config of each application with its defaults filled in, so a config is the same when all wanted fields are there.
"""

from typing import Any, cast

from common import errors
from common.api.opaque import Json
from common.ray import serve_config, serve_status
from common.ray.serve_status import DEFAULT_APP, ServeDetails
from common.ray.submit import Submit


def has(details: ServeDetails | None, action: Submit) -> bool:
    """Return whether Serve runs with the config, and the capacity, that an action would send."""
    if details is None:
        return False
    if action.capacity is not None and serve_status.capacity(details) != action.capacity:
        return False
    try:
        wanted = serve_config.to_json(action.given.serve_config)
    except errors.InvalidSpec:
        return False
    apps = {str(each.get("name") or DEFAULT_APP): each for each in cast("list[Json]", wanted.get("applications") or [])}
    held = details.named()
    return apps.keys() == held.keys() and all(_within(apps[name], held[name].deployed_app_config) for name in apps)


def _within(wanted: Any, held: Any) -> bool:
    """Return whether all wanted fields are there; the others are defaults."""
    match wanted:
        case dict():
            fields = cast("Json", wanted)
            return isinstance(held, dict) and all(
                _within(each, cast("Json", held).get(key)) for key, each in fields.items()
            )
        case list():
            items, others = cast("list[Any]", wanted), cast("list[Any]", held if isinstance(held, list) else [])
            return len(items) == len(others) and all(_within(*pair) for pair in zip(items, others, strict=True))
        case _:
            return bool(wanted == held)
