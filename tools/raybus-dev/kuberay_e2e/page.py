"""The page docs/kuberay-suites.md, whose tables a run writes. Does no I/O."""

from collections.abc import Mapping
from typing import Final

from kuberay_e2e import results
from kuberay_e2e.declarations import Declarations, count_lines
from kuberay_e2e.results import Outcome, SuiteRun

PATCHES: Final = "patches"
VARIABLES: Final = "variables"
SUMMARY: Final = "summary"


def record(page: str, run: SuiteRun, declared: Declarations, *, is_whole: bool) -> str:
    """Return the page with the results of a run in the table of its suite, and in the summary.

    Tests that did not run keep their line, unless the run selected all tests (`is_whole`). Raises
    `ValueError` if the page has no place for the suite.
    """
    known = {} if is_whole else _parse(_find(page, run.suite))
    rows = known | results.format_rows(run, declared)
    head = [f"| `{run.suite}` | result | seconds |", "|---|---|---|"]
    page = _replace(page, run.suite, [*head, *(rows[name] for name in sorted(rows))])
    return _replace(page, SUMMARY, _summarize(page, _find(page, SUMMARY)))


def describe(page: str, declared: Declarations) -> str:
    """Return the page with the tables of the patches and variables of `suites.yaml`."""
    patches = [
        f"| `{patch.file}` | {count_lines([patch])} | {patch.reason} |"
        for patch in declared.patches
    ]
    variables = [
        f"| `{variable.name}` | `{variable.value}` | {variable.reason} |"
        for variable in declared.environment
    ]
    page = _replace(page, PATCHES, ["| file | lines | reason |", "|---|---|---|", *patches])
    head = ["| variable | value | reason |", "|---|---|---|"]
    return _replace(page, VARIABLES, [*head, *variables])


def _summarize(page: str, old: str) -> list[str]:
    """Return the summary: for each suite in the old summary, a line computed from its table."""
    head = ["| suite | tests | passed | skipped | failed | seconds |", "|---|---|---|---|---|---|"]
    return head + [_count(suite, _parse(_find(page, suite))) for suite in _parse(old)]


def _count(suite: str, rows: Mapping[str, str]) -> str:
    cells = [row.strip("| ").rsplit(" | ", 2)[1:] for row in rows.values()]
    counts = [sum(cell.startswith(outcome) for cell, _ in cells) for outcome in _OUTCOMES]
    seconds = sum(int(cell) for _, cell in cells)
    return f"| {suite} | {len(cells)} | {' | '.join(map(str, counts))} | {seconds:,} |"


_OUTCOMES: Final = (Outcome.PASS, Outcome.SKIP, Outcome.FAIL)


def _parse(table: str) -> dict[str, str]:
    """Return the table's lines below its header, keyed by their first cell."""
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return {line[2:].partition(" | ")[0]: line for line in lines}


def _split(page: str, name: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, found, rest = page.partition(begin)
    content, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"the page has no lines {begin.strip()!r} and {end.strip()!r}")
    return before + begin, content, end + after


def _find(page: str, name: str) -> str:
    return _split(page, name)[1]


def _replace(page: str, name: str, lines: list[str]) -> str:
    before, _, after = _split(page, name)
    return "\n".join([before, *lines, "", after])
