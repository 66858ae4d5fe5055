"""A `rayClusterConfig` as KubeRay's Go types would write it back (spec rayservice §2.5), for clients that count on that.

KubeRay adds its finalizer with an update of the whole object. The zero values that Go writes, and quantities in their canonical
form, are a change of the spec to the API server, so `metadata.generation` grows by one. What the user wrote stays; fields that our
types do not know stay too. The hash that decides about clusters is the same for both forms.
"""

from typing import Any, cast

import msgspec

from common.api import go_json, go_types
from common.api.opaque import Json


def filled(config: Json) -> Json:
    """Return a config with the zero values that Go adds."""
    written = msgspec.json.decode(go_json.encode(go_types.CLUSTER_SPEC, config))
    return cast("Json", _merged(config, written))


def _merged(ours: Any, written: Any) -> Any:
    match ours, written:
        case dict(), dict():
            held, more = cast("Json", ours), cast("Json", written)
            added = {key: value for key, value in more.items() if key not in held and value is not None}
            return {**{key: _merged(value, more.get(key, value)) for key, value in held.items()}, **added}
        case list(), list():
            items, others = cast("list[Any]", ours), cast("list[Any]", written)
            return [_merged(*pair) for pair in zip(items, others, strict=True)]
        case _:
            return written if isinstance(ours, int | float | str) else ours
