"""What `raybus get` is to show, from the arguments that its user typed as for `kubectl get`."""

import difflib
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import KINDS, Kind, Target

ALL: Final = "all"
"""The category that both CRDs are in."""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Tables of some kinds, or objects."""

    tables: tuple[Kind, ...] = ()
    objects: tuple[Target, ...] = ()


def parse(arguments: Sequence[str], *, all_namespaces: bool = False, selector: str = "") -> Targets:
    """Return what the arguments ask for; raise `InvalidSpec` with the remedy for what kubectl refuses as well."""
    objects = _slashed(arguments) if "/" in arguments[0] else _named(arguments)
    if not objects:
        return Targets(tables=_kinds(arguments[0]))
    if all_namespaces:
        raise errors.InvalidSpec("a name and -A exclude each other: name the namespace with -n, or omit the name")
    if selector:
        raise errors.InvalidSpec("a name and -l exclude each other: omit the name, or the selector")
    return Targets(objects=tuple(dict.fromkeys(objects)))


def _slashed(arguments: Sequence[str]) -> list[Target]:
    found: list[Target] = []
    for text in arguments:
        kind, slash, name = text.partition("/")
        if not slash or not name:
            raise errors.InvalidSpec(f"{text!r} is not KIND/NAME; write 'rayservice/NAME', or 'rayservice NAME NAME'")
        found += [Target(each, name) for each in _kinds(kind)]
    return found


def _named(arguments: Sequence[str]) -> list[Target]:
    first, *names = arguments
    if slashed := next((each for each in names if "/" in each), None):
        raise errors.InvalidSpec(f"{slashed!r} names its kind already: omit {first!r}, or the part before the slash")
    return [Target(kind, name) for kind in _kinds(first) for name in names]


def _kinds(text: str) -> tuple[Kind, ...]:
    """Return the kinds of a list such as `rayservices,rayclusters`."""
    return tuple(
        dict.fromkeys(kind for part in text.split(",") for kind in ([*KINDS] if part == ALL else [_kind(part)]))
    )


def _kind(text: str) -> Kind:
    found = kinds.find(text)
    if found is None:
        close = difflib.get_close_matches(text.casefold(), [each.singular for each in KINDS], n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "for other kinds use 'kubectl get'"
        raise errors.InvalidSpec(f"{text!r} is neither rayservice nor raycluster; {remedy}")
    return found
