"""Writes Markdown tables and cells for the generated pages."""

from collections.abc import Iterable, Sequence
from typing import Final

WRITTEN: Final = "`make golden` generates this page from the code."


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def code(text: str) -> str:
    """Return a text as inline code in Markdown; empty for an empty text."""
    return f"`{text}`" if text else ""
