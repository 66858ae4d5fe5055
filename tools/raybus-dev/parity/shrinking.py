"""Reduces a case by removing parts of it, as long as the difference remains."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import msgspec

from common.api.opaque import Json
from parity.cases import Case

MAX_ATTEMPTS: Final = 250
"""Maximum attempts to shrink a case. Each removes one part of the case and runs both operators."""
_KEPT: Final = {
    "apiVersion",
    "kind",
    "name",
    "namespace",
    "uid",
    "containers",
    "groupName",
    "generation",
    "do",
}
"""Fields of a case that are never removed."""
Place = tuple[str | int, ...]


def shrunk(case: Case, shows: Callable[[Case], bool]) -> Case:
    """Return a smaller case for which `shows` is still true.

    `shows` says whether a case has the wanted difference.
    """
    attempts, is_smaller = 0, True
    while is_smaller and attempts < MAX_ATTEMPTS:
        is_smaller = False
        for place in [*_list_removable_parts(msgspec.to_builtins(case))]:
            smaller = _remove_part(case, place)
            if smaller is not None and attempts < MAX_ATTEMPTS:
                attempts += 1
                if shows(smaller):
                    case, is_smaller = smaller, True
    return case


def _list_removable_parts(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the paths of all removable parts: larger fields first, list items from the end."""
    if isinstance(value, dict):
        fields = cast("Json", value)
        for key in sorted(fields, key=lambda key: -len(msgspec.json.encode(fields[key]))):
            if key == "gates":
                continue
            if key in _KEPT:
                yield from _list_removable_parts(fields[key], (*place, key))
                continue
            yield (*place, key)
            yield from _list_removable_parts(fields[key], (*place, key))
    elif isinstance(value, list):
        for number in reversed(range(len(cast("list[Any]", value)))):
            yield (*place, number)
            yield from _list_removable_parts(value[number], (*place, number))


def _remove_part(case: Case, place: Place) -> Case | None:
    """Return the case without the part at `place`; None if the rest is no valid case."""
    body = copy.deepcopy(msgspec.to_builtins(case))
    at: Any = body
    try:
        for key in place[:-1]:
            at = at[key]
        del at[place[-1]]
        smaller = msgspec.convert(body, Case)
    except (KeyError, IndexError, TypeError, msgspec.ValidationError):  # already removed
        return None
    has_root = any(body is not None for body in (smaller.service, smaller.job, smaller.cron_job))
    is_whole = has_root or any(body["kind"] == "RayCluster" for body in smaller.objects)
    return smaller if is_whole and smaller != case else None
