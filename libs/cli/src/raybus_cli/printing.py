"""Prints results on standard output: one form for each `-o`, colours on a terminal only, whole lines into a pipe, tables as kubectl prints them.

A tree's line loses its least important parts first, then the front of the name.

A table that is wider than its terminal loses its least important columns first; then the widest cells are cut.
"""

import difflib
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import typer
import yaml
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from common import untrusted

PIPE_WIDTH: Final = 10_000
"""Columns of a line that goes into a file or a pipe, which has no width."""


class Output(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def _option(accepted: Sequence[Output]) -> Any:
    *others, last = accepted
    text = f"{', '.join(others)} or {last}"

    def parse(given: str) -> Output:
        found = next((each for each in accepted if each == given), None)
        if found is None:
            close = difflib.get_close_matches(given, accepted, n=1)
            raise typer.BadParameter(
                f"{given!r} is not {text}{f'; did you mean {str(close[0])!r}?' if close else ''}"
            )
        return found

    return typer.Option(
        "--output",
        "-o",
        parser=parse,
        metavar=f"<{'|'.join(accepted)}>",
        help=f"Output format: {text}.",
    )


OutputOption = Annotated[Output, _option(tuple(Output))]
ReportOption = Annotated[Output, _option((Output.TEXT, Output.WIDE, Output.JSON, Output.YAML))]
"""Of a verb that shows no objects, which have names, but findings about them."""
ResultOption = Annotated[Output, _option((Output.TEXT, Output.JSON, Output.YAML, Output.NAME))]
"""Of a verb that acts on objects."""
LinesOption = Annotated[Output, _option((Output.TEXT, Output.JSON))]
"""Of a verb that prints line by line, or one report for a person or a program."""
VersionOption = Annotated[Output, _option((Output.TEXT, Output.JSON, Output.YAML))]


class PlainConsole(Console):
    """A console that shows foreign texts as they are: no markup, no control character."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for each in super().render(renderable, options):
            yield (
                each
                if each.control is not None
                else Segment(untrusted.plain(each.text), each.style)
            )


def message(text: str, *, err: bool = False) -> None:
    """Print a line for people; no part of it can move the cursor."""
    typer.echo(untrusted.plain(text), err=err)


def console(*, width: int | None = None) -> Console:
    """Return standard output; a pipe gets plain text."""
    is_terminal = sys.stdout.isatty()
    columns = width or (None if is_terminal else PIPE_WIDTH)
    return PlainConsole(width=columns, highlight=False, emoji=False, markup=False)


def show(what: RenderableType) -> None:
    """Print for people; a pipe gets no blanks at the ends of lines."""
    printed = console()
    if printed.is_terminal:
        printed.print(what, crop=False)
        return
    with printed.capture() as captured:
        printed.print(what, crop=False)
    typer.echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)


def command(text: str) -> RenderableType:
    """Return a command to copy: a terminal wraps it, so that it has no line break."""
    return Text(text, no_wrap=True, overflow="ignore")


def data(value: Any, output: Output) -> None:
    """Print for programs."""
    typer.echo(text_of(value, output), nl=False)


def text_of(value: Any, output: Output) -> str:
    """Return data as JSON or YAML text, without a character that a terminal obeys."""
    if output is Output.YAML:
        text = yaml.dump(
            msgspec.to_builtins(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True
        )
        return untrusted.escaped(text)
    return (
        untrusted.escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"
    )


def line_of(value: Any) -> str:
    """Return data as JSON in one line, without a character that a terminal obeys."""
    return untrusted.escaped(msgspec.json.encode(value).decode())


class _Dumper(yaml.SafeDumper):
    """Quotes the texts in which a character has to be escaped: only double quotes permit it."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if untrusted.has_invisible(text) else None
    scalar: yaml.ScalarNode = dumper.represent_scalar(  # pyright: ignore[reportUnknownMemberType]
        "tag:yaml.org,2002:str", text, style=style
    )
    return scalar


_Dumper.add_representer(str, _text)


def age(seconds: int | None) -> str:
    """Return an age as kubectl prints it."""
    if seconds is None:
        return "-"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h" if days < 2 else f"{days}d"


LEAST: Final = 8
"""Columns that a cut name keeps."""


class FittingLine(msgspec.Struct, frozen=True):
    """A name and what follows it, in forms from the longest to the shortest."""

    name: Text
    forms: tuple[Text, ...] = (Text(),)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        room = options.max_width
        form = next(
            (each for each in self.forms if self.name.cell_len + each.cell_len <= room),
            self.forms[-1],
        )
        name = _cut(self.name, max(LEAST, room - form.cell_len))
        yield Text.assemble(name, form, no_wrap=True, overflow="ellipsis")


def _cut(name: Text, width: int) -> Text:
    """Return a name that keeps its end, by which pods of one group differ."""
    plain = untrusted.plain(name.plain)
    if cell_len(plain) <= width:
        return name
    return Text(f"…{set_cell_size(plain[::-1], width - 1)[::-1]}", style=name.style)


GAP: Final = 3
"""Blanks between two columns."""


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
        return [
            blank.join(self._cell(row[each], each, widths[each]) for each in kept).rstrip()
            for row in cells
        ]

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
