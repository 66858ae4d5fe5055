"""The intended differences from KubeRay, with reasons, in `differences.yaml`.

Each entry is a row of docs/kuberay-map.md. An entry that affects the comparison has rules. A rule
declares a difference as intended if everything that the rule states applies to the difference: its
regular expressions match the place and the values, and its replacements make the values equal. A
difference that no rule declares fails the run.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from common.api.opaque import Json
from parity import consequences
from parity.comparable import Difference

FILE: Final = Path(__file__).with_name("differences.yaml")


class DifferenceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of an entry: which differences the entry declares.

    All fields that are set must match the difference. An absent value is matched as the text
    `nothing`.
    """

    place: str
    theirs: str = ""
    ours: str = ""
    beside: list[str] = []
    """Patterns that the round must match: each by an Event, write, object or manifest problem."""
    without: str = ""
    """Pattern that must match no Event, write, object or manifest problem of the round."""
    rewrite: list[tuple[str, str]] = []
    """Pairs of pattern and replacement. They must make KubeRay's and raybus's values equal."""
    cause: str = ""
    """Name of a cause in `consequences.CAUSES` from which the difference must follow."""

    def declares(self, difference: Difference, both: tuple[Json, Json]) -> bool:
        """Return whether the rule declares `difference` as intended.

        `both` are the outcomes of KubeRay and raybus in the round in which they differ.
        """
        theirs, ours = text(difference.theirs), text(difference.ours)
        if (
            not re.search(self.place, difference.place)
            or not re.search(self.theirs, theirs)
            or not re.search(self.ours, ours)
        ):
            return False
        if not all(
            any(re.search(one, title) for title in _list_titles(both)) for one in self.beside
        ):
            return False
        if self.without and any(re.search(self.without, title) for title in _list_titles(both)):
            return False
        if self.cause and not consequences.CAUSES[self.cause](difference, *both):
            return False
        return not self.rewrite or self._is_same(difference)

    def _is_same(self, difference: Difference) -> bool:
        theirs: Any = difference.theirs
        values = cast("list[Any]", theirs) if isinstance(theirs, list) else [theirs]
        return self._normalize(text(difference.ours)) in [
            self._normalize(text(value)) for value in values
        ]

    def _normalize(self, value: str) -> str:
        for pattern, replacement in self.rewrite:
            value = re.sub(pattern, replacement, value)
        return value


class DeclaredDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `differences.yaml`: one intended difference."""

    topic: str
    kuberay: str
    raybus: str
    reason: str
    rules: list[DifferenceRule] = []
    until: str = ""
    """Last minor version of KubeRay that differs; newer versions behave like raybus.

    Such an entry is not listed in docs/kuberay-map.md.
    """


def text(value: Any) -> str:
    """Return a value as the text that a rule's patterns match."""
    if value is None:
        return "nothing"
    return (
        value
        if isinstance(value, str)
        else msgspec.json.encode(value, order="deterministic").decode()
    )


def _list_titles(both: tuple[Json, Json]) -> Iterable[str]:
    for outcome in both:
        for reason, notes in outcome["events"].items():
            yield from (f"{reason}: {note}" for note in notes)
        yield from outcome["writes"]
        for title, body in outcome["objects"].items():
            yield title
            if "deletionTimestamp" in body.get("metadata", {}):
                yield f"terminating {title}"
        yield outcome["built"].get("problem", "")


@cache
def entries() -> list[DeclaredDifference]:
    """Return all entries of `differences.yaml`."""
    return msgspec.yaml.decode(FILE.read_bytes(), type=list[DeclaredDifference])


def entry_of(
    difference: Difference, theirs: Sequence[Json], ours: Sequence[Json], *, release: str
) -> DeclaredDifference | None:
    """Return the entry that declares the difference; None if no entry does.

    `theirs` and `ours` are the outcomes of all rounds; `release` is KubeRay's minor version.
    """
    number = int(difference.place.split("/", 1)[0])
    both = (theirs[number], ours[number])
    known = (entry for entry in entries() if entry.until in {"", release})
    return next(
        (entry for entry in known if any(rule.declares(difference, both) for rule in entry.rules)),
        None,
    )


def undeclared(
    differences: Iterable[Difference], theirs: Sequence[Json], ours: Sequence[Json], *, release: str
) -> list[Difference]:
    """Return the `differences` that no entry declares (see `entry_of`)."""
    return [
        difference
        for difference in differences
        if entry_of(difference, theirs, ours, release=release) is None
    ]
