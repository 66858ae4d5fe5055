"""The fields that differ between the present spec and a new one, each with its effect.

To find the effect of a field inside `rayClusterConfig`, only that field is changed in the old spec.
The hash of the result shows whether the service would need a new cluster.
"""

import copy
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from common.api.opaque import Json
from common.ray import spec_hash
from raybus_cli.manifests import FieldPath, format_path

MISSING: Final = object()
CONFIG: Final = "rayClusterConfig"
GROUPS: Final = "workerGroupSpecs"
MAX_SHOWN_LENGTH: Final = 60
"""Maximum length, in characters, of a printed value."""


class Effect(StrEnum):
    """The effect of a changed field on the running service."""

    NEW_CLUSTER = "new cluster"
    NEW_PODS = "new pods"
    IN_PLACE = "in place"
    NEXT_ATTEMPT = "next attempt"
    """For a RayJob: the present attempt keeps the old value."""
    NOTHING = "nothing now"


class SpecDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A changed field of a spec."""

    field: str
    effect: Effect
    old: str
    new: str
    note: str = ""


_SETTINGS: Final = {
    "serveConfigV2": (Effect.IN_PLACE, "sent to Serve; with a new cluster to that one only"),
    "upgradeStrategy": (
        Effect.NOTHING,
        "applies to the next upgrade, and to the next step of a current one",
    ),
    "rayClusterDeletionDelaySeconds": (Effect.NOTHING, "how long an old cluster is kept"),
    "serveService": (Effect.IN_PLACE, "the Serve Service is changed"),
    "excludeHeadPodFromServeSvc": (Effect.IN_PLACE, "the head pod's label is changed"),
    "suspend": (Effect.IN_PLACE, "everything is deleted, or created again"),
}


def compare_specs(old: Json, new: Json) -> list[SpecDifference]:
    """Return the differences between two specs of a RayService, field by field."""
    return _describe(old, new, lambda path, after: _predict_effect(old, path, after), CONFIG)


def compare_job_specs(
    old: Json,
    new: Json,
    find_effect: Callable[[str], tuple[Effect, str]],
    *,
    config: str = "rayClusterSpec",
) -> list[SpecDifference]:
    """Return the differences between two specs of a RayJob or RayCronJob, field by field.

    `find_effect` maps a field of the spec to its effect and a note. `config` is the name of the
    field that holds the spec of the cluster.
    """
    return _describe(old, new, lambda path, _: find_effect(str(path[0])), config)


def _describe(
    old: Json,
    new: Json,
    find_effect: Callable[[FieldPath, object], tuple[Effect, str]],
    config: str,
) -> list[SpecDifference]:
    differences: list[SpecDifference] = []
    for path, before, after in _list_changed_fields(old, new, ()):
        effect, note = find_effect(path, after)
        field = format_path(("spec", *_name_groups(path, old, new, config)))
        was, becomes = _select_differing_lines(before, after)
        differences.append(
            SpecDifference(
                field=field,
                effect=effect,
                old=_format_value(was),
                new=_format_value(becomes),
                note=note,
            )
        )
    return differences


def _select_differing_lines(before: object, after: object) -> tuple[object, object]:
    """Reduce two multi-line texts to the lines that differ; other values are returned unchanged."""
    if not isinstance(before, str) or not isinstance(after, str):
        return before, after
    old, new = before.splitlines(), after.splitlines()
    gone, come = (
        [line for line in old if line not in new],
        [line for line in new if line not in old],
    )
    if not (len(old) > 1 and len(new) > 1) or not (gone or come):
        return before, after
    return "\n".join(gone) or MISSING, "\n".join(come) or MISSING


def _predict_effect(old: Json, path: FieldPath, after: object) -> tuple[Effect, str]:
    if path[0] != CONFIG:
        return _SETTINGS.get(str(path[0]), (Effect.NOTHING, ""))
    before: Json = old.get(CONFIG) or {}
    alone = _replace_field(before, path[1:], after)
    if spec_hash.service_goal_hash(alone) == spec_hash.service_goal_hash(before):
        return Effect.NOTHING, "a running cluster keeps its value; a new one starts with this one"
    count = len(cast("list[Any]", before.get(GROUPS) or []))
    if spec_hash.service_goal_hash(alone, worker_groups=count) == spec_hash.service_goal_hash(
        before
    ):
        return Effect.IN_PLACE, "a worker group is added to the running cluster"
    return Effect.NEW_CLUSTER, ""


def _list_changed_fields(
    old: object, new: object, path: FieldPath
) -> list[tuple[FieldPath, object, object]]:
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("Json", old), cast("Json", new)
        keys = [*before, *(key for key in after if key not in before)]
        return [
            leaf
            for key in keys
            for leaf in _list_changed_fields(
                before.get(key, MISSING), after.get(key, MISSING), (*path, key)
            )
        ]
    if isinstance(old, list) and isinstance(new, list):
        first, second = cast("list[object]", old), cast("list[object]", new)
        both = min(len(first), len(second))
        leaves = [
            leaf
            for at in range(both)
            for leaf in _list_changed_fields(first[at], second[at], (*path, at))
        ]
        leaves += [((*path, at), first[at], MISSING) for at in range(both, len(first))]
        return leaves + [((*path, at), MISSING, second[at]) for at in range(both, len(second))]
    return [(path, old, new)]


def _replace_field(config: Json, path: FieldPath, value: object) -> Json:
    """Return a copy of a config in which one field is changed, added, or removed (`MISSING`)."""
    if not path:
        return {} if value is MISSING else cast("Json", value)
    changed = copy.deepcopy(config)
    at: Any = changed
    for part in path[:-1]:
        at = at[part]
    last = path[-1]
    if value is MISSING:
        del at[last]
    elif isinstance(last, int) and last >= len(at):
        at.append(value)
    else:
        at[last] = value
    return changed


def _name_groups(path: FieldPath, old: Json, new: Json, config: str) -> FieldPath:
    """Replace the index of a worker group in a path by the name of the group.

    The index is kept if the groups at this index have different names in the two specs.
    """
    if path[:2] != (config, GROUPS) or len(path) < len((config, GROUPS, 0)):
        return path
    at = cast("int", path[2])
    names = {_group_name(spec, at, config) for spec in (old, new)} - {None}
    # `names` has no None, which was removed above.
    return (*path[:2], names.pop(), *path[3:]) if len(names) == 1 else path  # pyright: ignore[reportReturnType]


def _group_name(spec: Json, at: int, config: str) -> str | None:
    cluster: Json = spec.get(config) or {}
    groups = cast("list[Json]", cluster.get(GROUPS) or [])
    return str(groups[at].get("groupName", at)) if at < len(groups) else None


def _format_value(value: object) -> str:
    if value is MISSING:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN_LENGTH else f"{text[: MAX_SHOWN_LENGTH - 1]}…"
