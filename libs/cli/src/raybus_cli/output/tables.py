"""Tables as kubectl prints them: one line for each row, whatever the width.

A table that is wider than its terminal loses its least important columns first; then the widest cells are cut.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from common import untrusted

GAP: Final = 3
"""Blanks between two columns."""
LEAST: Final = 8
"""Characters that a cut cell keeps."""


class Column(msgspec.Struct, frozen=True):
    """A column; `rank` 0 is never dropped, and of the others the greatest is dropped first."""

    heading: str
    rank: int = 0
    keeps_end: bool = False
    """Whether a cell is cut in front: the tag of an image matters most."""


class Table(msgspec.Struct, frozen=True):
    """Columns and their rows, for `printing.show`."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]

    def lines(self, room: int) -> list[str]:
        """Return the headings and the rows, one line each, in so many columns of a terminal."""
        cells = [
            [each.heading.upper() for each in self.columns],
            *([_one_line(each) for each in row] for row in self.rows),
        ]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        kept = list(range(len(widths)))
        while _length(widths, kept) > room and any(self.columns[each].rank for each in kept):
            kept.remove(max(kept, key=lambda each: self.columns[each].rank))
        while _length(widths, kept) > room and max(widths[each] for each in kept) > LEAST:
            widths[max(kept, key=lambda each: widths[each])] -= 1
        blank = " " * GAP
        return [blank.join(self._cell(row[each], each, widths[each]) for each in kept).rstrip() for row in cells]

    def _cell(self, text: str, column: int, width: int) -> str:
        if cell_len(text) <= width:
            return set_cell_size(text, width)
        if self.columns[column].keeps_end:
            return f"…{set_cell_size(text[::-1], width - 1)[::-1]}"
        return f"{set_cell_size(text, width - 1)}…"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        for index, line in enumerate(self.lines(options.max_width)):
            yield Text(line, style="" if index else "bold", no_wrap=True, overflow="ellipsis")


def _one_line(text: str) -> str:
    return " ".join(untrusted.plain(text).split())


def _length(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[each] for each in kept) + GAP * (len(kept) - 1)
