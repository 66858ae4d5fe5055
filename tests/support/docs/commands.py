"""Extracts the commands that a page tells its reader to run.

The commands are the lines after `$ ` in a console block, and each line of a shell block.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

_BLOCK: Final = re.compile(r"^```(console|sh|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command of a page, without its comment."""

    page: str
    text: str


def of(page: Path) -> list[Command]:
    """Return the commands of a page in the order in which they appear."""
    return [Command(page=page.name, text=text) for text in _texts(page.read_text())]


def _texts(page: str) -> Iterator[str]:
    for kind, body in _BLOCK.findall(page):
        lines = body.replace("\\\n", "").splitlines()
        typed = (
            line.removeprefix("$ ") for line in lines if kind != "console" or line.startswith("$ ")
        )
        yield from filter(None, (re.sub(r"\s+#.*$", "", line).strip() for line in typed))
