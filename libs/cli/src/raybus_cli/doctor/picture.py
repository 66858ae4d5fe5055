"""The report of `raybus doctor` for people: categories, a mark for each check, the remedy, and the result."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from raybus_cli.doctor.check import Check, CheckState


class Mark(msgspec.Struct, frozen=True):
    """The sign of a result, and one for an output that is not UTF-8."""

    sign: str
    plain: str
    style: str
    noun: str


MARKS: Final = {
    CheckState.FAILED: Mark("×", "x", "bold red", "failed"),
    CheckState.WARNING: Mark("‼", "!", "yellow", "with a warning"),
    CheckState.UNKNOWN: Mark("?", "?", "dim", "unknown"),
    CheckState.OK: Mark("√", "+", "green", "passed"),
}
"""The most severe first."""


def draw(found: Sequence[Check], *, is_ascii: bool = False) -> RenderableType:
    """Return the report, in ASCII for an output that cannot show more."""
    shown = list(_lines(found, is_ascii=is_ascii))
    if is_ascii:
        shown = [Text(line.plain.encode("ascii", "replace").decode(), spans=line.spans) for line in shown]
    return Group(*shown)


def _lines(found: Sequence[Check], *, is_ascii: bool) -> Iterator[Text]:
    """Yield the checks by category, and the result."""
    arrow = "->" if is_ascii else "→"
    for category, members in groupby(found, key=lambda each: each.category):
        yield Text(str(category), style="bold")
        for each in members:
            yield Text.assemble(_mark(each.state, is_ascii=is_ascii), f" {each.name}: {each.text}")
            if each.remedy:
                yield Text(f"  {arrow} {each.remedy}")
            if each.hint:
                yield Text(f"  {arrow} see {each.hint}")
        yield Text()
    counts = Counter(each.state for each in found)
    worst = next((state for state in MARKS if counts[state] and state is not CheckState.UNKNOWN), CheckState.UNKNOWN)
    numbers = ", ".join(f"{counts[state]} {mark.noun}" for state, mark in MARKS.items() if counts[state])
    yield Text.assemble("Result ", _mark(worst, is_ascii=is_ascii), f" {numbers}")


def _mark(state: CheckState, *, is_ascii: bool) -> tuple[str, str]:
    mark = MARKS[state]
    return (mark.plain if is_ascii else mark.sign, mark.style)
