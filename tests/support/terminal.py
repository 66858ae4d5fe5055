"""What a person sees: a picture as the text of a terminal of a given width."""

from io import StringIO

from rich.console import Console, RenderableType


def text_of(picture: RenderableType, *, width: int = 118) -> str:
    """Return a picture without colours and without blanks at the end of lines."""
    console = Console(file=StringIO(), width=width, highlight=False, emoji=False, force_terminal=False)
    with console.capture() as captured:
        console.print(picture)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
