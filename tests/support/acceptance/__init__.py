"""The acceptance cases of the specifications with the tests that prove them, and their stages: `docs/acceptance-*.md`.

A test declares that by its name (`test_case_85_…`, or `case 85` in the id of a row) or by a mark,
`@pytest.mark.acceptance("raycluster", 85, 86)`. A name counts for the specification of the service that the test is about.
The pages are made from what pytest collects; `tests/architecture/test_acceptance.py` keeps them up to date.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pytest

from mutants.table import TABLE

SPECIFICATIONS: Final = {"raycluster": 25, "rayservice": 22, "rayjob": 26}
"""The specifications and the section that holds their cases."""
STAGES: Final = ("unit", "scenario", "contract", "integration", "e2e")
MUTATED: Final = "rayservice"
"""The specification to which the mutants of `mutants.table` belong."""
_CASE: Final = re.compile(r"case[ _](\d+)")
_OF_RAY_SERVICE: Final = ("service_reconciler", "traffic_manager")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One acceptance case, with a short title."""

    number: int
    title: str
    excuse: str = ""
    """Why nothing proves it yet."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A test, and the case that it proves."""

    specification: str
    number: int
    test: str
    """The path below tests/ and the name of the function."""

    @property
    def stage(self) -> str:
        """Return the folder of tests/ that holds the test."""
        return self.test.split("/", 1)[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let what was collected be written down."""
    parser.addoption(
        "--acceptance", metavar="FILE", help="write to FILE which acceptance cases the tests prove"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", 'acceptance(specification, *numbers): cases proven, as in ("raycluster", 85)'
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the evidence to the file of `--acceptance`."""
    target = session.config.getoption("--acceptance")
    if target:
        found = sorted({each for item in session.items for each in evidence_of(item)})
        Path(str(target)).write_bytes(msgspec.json.encode(found))


def evidence_of(item: pytest.Item) -> Iterator[Evidence]:
    """Return what one test proves, by its marks and by its name."""
    test = item.nodeid.partition("[")[0].removeprefix("tests/")
    for mark in item.iter_markers("acceptance"):
        specification, *numbers = mark.args
        for number in numbers:
            yield Evidence(specification=specification, number=number, test=test)
    named = "rayservice" if any(service in test for service in _OF_RAY_SERVICE) else "raycluster"
    for match in _CASE.finditer(item.name):
        yield Evidence(specification=named, number=int(match[1]), test=test)


def cases(specification: str) -> tuple[Case, ...]:
    """Read the list of a specification's cases."""
    text = (Path(__file__).parent / f"{specification}.txt").read_text()
    return tuple(_case(line) for line in text.splitlines() if not line.startswith("#"))


def page(specification: str, evidence: Iterable[Evidence]) -> str:
    """Write the page of a specification."""
    known = cases(specification)
    by_number: dict[int, list[Evidence]] = {case.number: [] for case in known}
    for each in evidence:
        if each.specification == specification:
            by_number.setdefault(each.number, []).append(each)
    if unknown := sorted(by_number.keys() - {case.number for case in known}):
        raise AssertionError(
            f"{specification} has no case {unknown[0]}: {by_number[unknown[0]][0].test} names it"
        )
    lines = [*_head(specification, known, by_number), *(_row(case, by_number) for case in known)]
    return "\n".join(lines if specification != MUTATED else _with_mutants(lines, known)) + "\n"


def _with_mutants(lines: list[str], known: tuple[Case, ...]) -> list[str]:
    """Add the column of the mutants that tests were seen to fail of."""
    killed = {str(each.case): each.what for each in TABLE}
    cells = {
        "case": "mutant",
        **{str(case.number): killed.get(str(case.number), "") for case in known},
    }
    found: list[str] = []
    for line in lines:
        first = line.removeprefix("| ").partition(" |")[0]
        is_row = line.startswith("| ") and first in cells
        found.append(
            f"{line} {cells[first]} |"
            if is_row
            else f"{line}---|"
            if line.startswith("|---")
            else line
        )
    note = "A mutant is a change of the code that makes the case's test fail; `make mutants TABLE=1` runs them again."
    return [*found[:6], note, "", *found[6:]]


def _head(
    specification: str, known: tuple[Case, ...], by_number: Mapping[int, list[Evidence]]
) -> list[str]:
    proven = sum(bool(by_number[case.number]) for case in known)
    left_out = sum(bool(case.excuse) and not by_number[case.number] for case in known)
    section = SPECIFICATIONS[specification]
    return [
        f"# Acceptance cases: {specification}",
        "",
        f"`make golden` generates this page from the tests that pytest collects. Section {section} of the",
        f"[behavior specification](spec/{specification}.md) defines the cases. The lowest stage that can prove a case does so; `make check` fails if this page",
        "is stale.",
        "",
        f"{proven} of {len(known)} cases have a test, {left_out} are intentionally omitted, {len(known) - proven - left_out} have none yet.",
        "",
        "| case | topic | stages | tests |",
        "|---|---|---|---|",
    ]


def _row(case: Case, by_number: Mapping[int, list[Evidence]]) -> str:
    found = by_number[case.number]
    stages = [stage for stage in STAGES if any(each.stage == stage for each in found)]
    tests = "<br>".join(f"`{test}`" for test in sorted({each.test for each in found}))
    nothing = f"left out: {case.excuse}" if case.excuse else "**none yet**"
    return f"| {case.number} | {case.title} | {', '.join(stages)} | {tests or nothing} |"


def _case(line: str) -> Case:
    number, _, rest = line.partition(" ")
    title, _, excuse = rest.partition(" -- ")
    return Case(number=int(number), title=title, excuse=excuse)
