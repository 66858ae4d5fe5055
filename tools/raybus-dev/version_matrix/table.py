"""The table of the version matrix in a Markdown page. Does no I/O."""

from collections.abc import Iterable, Mapping
from typing import Final

from version_matrix.rows import ROWS, STEPS, RowOutcome, VersionRow

BEGIN: Final = "<!-- written by make version-matrix: begin -->"
END: Final = "<!-- written by make version-matrix: end -->"
HEAD: Final = ("row", "other versions", *(f"{step}, s" for step in STEPS), "new cluster's traffic")


def update(page: str, outcomes: Iterable[RowOutcome]) -> str:
    """Return the page with the lines of these outcomes replaced.

    Raises `ValueError` if the page has no place for the table.
    """
    before, begin, rest = page.partition(f"{BEGIN}\n")
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    lines = {**_parse(old), **{outcome.row: _format(outcome) for outcome in outcomes}}
    return f"{before}{begin}\n{_render(lines)}\n{end}{after}"


def _parse(table: str) -> dict[str, str]:
    """Return the lines of a table, keyed by the row name in their first column."""
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: line for line in lines}


def _render(lines: Mapping[str, str]) -> str:
    """Return the table, with the lines in the order of `ROWS`."""
    rule = "|".join("---" for _ in HEAD)
    known = (lines[row.name] for row in ROWS if row.name in lines)
    return "\n".join([f"| {' | '.join(HEAD)} |", f"|{rule}|", *known, ""])


def _format(outcome: RowOutcome) -> str:
    row: VersionRow = next(row for row in ROWS if row.name == outcome.row)
    figures = [f"{outcome.seconds[step]:.1f}" if step in outcome.seconds else "" for step in STEPS]
    traffic = " → ".join(f"{weight} %" for weight in outcome.weights)
    last = f"refused: {outcome.refusal}" if outcome.refusal else traffic
    return f"| `{row.name}` | {row.difference or 'none'} | {' | '.join(figures)} | {last} |"
