"""Output as a person sees it: a picture as the text of a terminal of a given width."""

import re
from io import StringIO
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console, RenderableType
from rich.text import Text

FONT_FACE: Final = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
"""Pattern for the fonts that a browser would load from another host."""
COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)


def text_of(picture: RenderableType, *, width: int = 118) -> str:
    """Return a picture without colours and without blanks at the end of lines."""
    console = Console(
        file=StringIO(), width=width, highlight=False, emoji=False, force_terminal=False
    )
    with console.capture() as captured:
        console.print(picture)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def svg_of(command: str, output: str, *, width: int) -> str:
    """Return a picture of a terminal with a command and its output; the same output gives the same picture, which loads nothing."""
    console = Console(
        file=StringIO(), record=True, width=width, force_terminal=True, color_system="256"
    )
    console.print(Text.assemble(("$ ", "dim"), (command, "bold")), highlight=False)
    console.print(Text.from_ansi(output.rstrip()), soft_wrap=True)
    console.print()  # the picture cuts its last line
    name = re.sub("[^a-z]+", "-", command)
    template = FONT_FACE.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code, monospace", "monospace")
    picture = console.export_svg(title="", code_format=template, unique_id=name)
    return (
        "\n".join(line.rstrip() for line in COMMENT.sub("", picture).splitlines() if line.strip())
        + "\n"
    )
