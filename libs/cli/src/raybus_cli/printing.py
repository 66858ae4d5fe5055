"""Prints results on standard output in the format of `-o`.

Colours are used on a terminal only. A pipe gets untruncated lines. Tables look like kubectl's. If a
table is wider than the terminal, the columns with the highest rank are dropped first; if that is
not enough, the widest cells are cut. If a line of a tree is too wide, its details are shortened; if
that is not enough, the beginning of its name is cut off.
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
"""Line width, in columns, for output to a file or a pipe."""


class Output(StrEnum):
    """Values of the option `-o`."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def _build_option(accepted: Sequence[Output]) -> Any:
    *others, last = accepted
    text = f"{', '.join(others)} or {last}"

    def parse(given: str) -> Output:
        choice = next((option for option in accepted if option == given), None)
        if choice is None:
            close = difflib.get_close_matches(given, accepted, n=1)
            raise typer.BadParameter(
                f"{given!r} is not {text}{f'; did you mean {str(close[0])!r}?' if close else ''}"
            )
        return choice

    return typer.Option(
        "--output",
        "-o",
        parser=parse,
        metavar=f"<{'|'.join(accepted)}>",
        help=f"Output format: {text}.",
    )


OutputOption = Annotated[Output, _build_option(tuple(Output))]
ReportOption = Annotated[
    Output, _build_option((Output.TEXT, Output.WIDE, Output.JSON, Output.YAML))
]
"""`-o` of a command that reports findings; findings have no names, so `name` is not offered."""
ResultOption = Annotated[
    Output, _build_option((Output.TEXT, Output.JSON, Output.YAML, Output.NAME))
]
"""`-o` of a command that changes objects."""
LinesOption = Annotated[Output, _build_option((Output.TEXT, Output.JSON))]
"""`-o` of a command that prints a stream of lines, or one report."""
VersionOption = Annotated[Output, _build_option((Output.TEXT, Output.JSON, Output.YAML))]


class PlainConsole(Console):
    """A rich console that prints texts literally, without markup and control characters."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control is not None
                else Segment(untrusted.plain(segment.text), segment.style)
            )


def print_message(text: str, *, err: bool = False) -> None:
    """Print a line of text, with control characters removed."""
    typer.echo(untrusted.plain(text), err=err)


def create_console(*, width: int | None = None) -> Console:
    """Create a console for standard output; output to a pipe has no colours."""
    is_terminal = sys.stdout.isatty()
    columns = width or (None if is_terminal else PIPE_WIDTH)
    return PlainConsole(width=columns, highlight=False, emoji=False, markup=False)


def show(what: RenderableType) -> None:
    """Print text, a table or a tree; output to a pipe has no trailing blanks."""
    printed = create_console()
    if printed.is_terminal:
        printed.print(what, crop=False)
        return
    with printed.capture() as captured:
        printed.print(what, crop=False)
    typer.echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)


def format_command(text: str) -> RenderableType:
    """Format a shell command for copying: a terminal may wrap it, but no line break is inserted."""
    return Text(text, no_wrap=True, overflow="ignore")


def print_data(value: Any, output: Output) -> None:
    """Print a value as JSON or YAML."""
    typer.echo(encode_text(value, output), nl=False)


def encode_text(value: Any, output: Output) -> str:
    """Encode a value as JSON or YAML text; control characters are escaped."""
    if output is Output.YAML:
        text = yaml.dump(
            msgspec.to_builtins(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True
        )
        return untrusted.escaped(text)
    return (
        untrusted.escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"
    )


def encode_line(value: Any) -> str:
    """Encode a value as one line of JSON; control characters are escaped."""
    return untrusted.escaped(msgspec.json.encode(value).decode())


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that double-quotes strings with invisible characters.

    YAML permits escapes only in double-quoted strings.
    """


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if untrusted.has_invisible(text) else None
    scalar: yaml.ScalarNode = dumper.represent_scalar(  # pyright: ignore[reportUnknownMemberType]
        "tag:yaml.org,2002:str", text, style=style
    )
    return scalar


_Dumper.add_representer(str, _represent_text)


def format_age(seconds: int | None) -> str:
    """Format an age in seconds as kubectl does: `90s`, `5m30s`, `2d`."""
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


MIN_COLUMN_WIDTH: Final = 8
"""Minimum width, in columns, of a cell or name that is cut."""


class FittingLine(msgspec.Struct, frozen=True):
    """A name followed by details.

    The details are given in several forms, longest first; the first form that fits the line is
    printed.
    """

    name: Text
    forms: tuple[Text, ...] = (Text(),)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        room = options.max_width
        form = next(
            (form for form in self.forms if self.name.cell_len + form.cell_len <= room),
            self.forms[-1],
        )
        name = _cut_name(self.name, max(MIN_COLUMN_WIDTH, room - form.cell_len))
        yield Text.assemble(name, form, no_wrap=True, overflow="ellipsis")


def _cut_name(name: Text, width: int) -> Text:
    """Cut off the beginning of a name, because the names of similar pods differ at the end."""
    plain = untrusted.plain(name.plain)
    if cell_len(plain) <= width:
        return name
    return Text(f"…{set_cell_size(plain[::-1], width - 1)[::-1]}", style=name.style)


COLUMN_GAP: Final = 3
"""Blanks between two columns."""


class Column(msgspec.Struct, frozen=True):
    """A table column. The column with the highest rank is dropped first, one of rank 0 never."""

    heading: str
    rank: int = 0
    keeps_end: bool = False
    """Whether a cell that is too wide is cut at its beginning, to keep the tag of an image name."""


class Table(msgspec.Struct, frozen=True):
    """Columns and rows, printed by `printing.show`."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]

    def format_lines(self, room: int) -> list[str]:
        """Return the headings and the rows as lines of at most `room` terminal columns.

        Columns of rank 0 are never dropped and cells keep `MIN_COLUMN_WIDTH` columns, so lines may
        exceed a very narrow terminal.
        """
        cells = [
            [column.heading.upper() for column in self.columns],
            *([_join_lines(cell) for cell in row] for row in self.rows),
        ]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        kept = list(range(len(widths)))
        while _compute_width(widths, kept) > room and any(
            self.columns[index].rank for index in kept
        ):
            kept.remove(max(kept, key=lambda index: self.columns[index].rank))
        while (
            _compute_width(widths, kept) > room
            and max(widths[index] for index in kept) > MIN_COLUMN_WIDTH
        ):
            widths[max(kept, key=lambda index: widths[index])] -= 1
        blank = " " * COLUMN_GAP
        return [
            blank.join(
                self._format_cell(row[index], index, widths[index]) for index in kept
            ).rstrip()
            for row in cells
        ]

    def _format_cell(self, text: str, column: int, width: int) -> str:
        if cell_len(text) <= width:
            return set_cell_size(text, width)
        if self.columns[column].keeps_end:
            return f"…{set_cell_size(text[::-1], width - 1)[::-1]}"
        return f"{set_cell_size(text, width - 1)}…"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        for index, line in enumerate(self.format_lines(options.max_width)):
            yield Text(line, style="" if index else "bold", no_wrap=True, overflow="ellipsis")


def _join_lines(text: str) -> str:
    return " ".join(untrusted.plain(text).split())


def _compute_width(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + COLUMN_GAP * (len(kept) - 1)
