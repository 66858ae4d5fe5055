"""One line of a tree, whatever the width: the least important parts go first, then the front of the name."""

from typing import Final

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from common import untrusted

LEAST: Final = 8
"""Columns that a cut name keeps."""


class FittingLine(msgspec.Struct, frozen=True):
    """A name and what follows it, in forms from the longest to the shortest."""

    name: Text
    forms: tuple[Text, ...] = (Text(),)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        room = options.max_width
        form = next((each for each in self.forms if self.name.cell_len + each.cell_len <= room), self.forms[-1])
        name = _cut(self.name, max(LEAST, room - form.cell_len))
        yield Text.assemble(name, form, no_wrap=True, overflow="ellipsis")


def _cut(name: Text, width: int) -> Text:
    """Return a name that keeps its end, by which pods of one group differ."""
    plain = untrusted.plain(name.plain)
    if cell_len(plain) <= width:
        return name
    return Text(f"…{set_cell_size(plain[::-1], width - 1)[::-1]}", style=name.style)
