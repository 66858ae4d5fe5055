"""Every section of a behaviour specification that code or a test cites exists.

Citations have the form `spec rayservice §8.3`, or `§8.3` after it.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

from support.manifests import ROOT

CITED: Final = re.compile(r"[Ss]pec (raycluster|rayservice|rayjob)|§ ?(\d+(?:\.\d+)*)")
HEADING: Final = re.compile(r"^#{2,4} (\d+(?:\.\d+)*)\.? .*$", re.MULTILINE)
ROW: Final = re.compile(r"^\| (\d+) \|", re.MULTILINE)


@cache
def _sections(kind: str) -> frozenset[str]:
    """Return the numbers of the sections of a specification, and `17.4` for row 4 of a table in section 17."""
    parts = HEADING.split((ROOT / "docs" / "spec" / f"{kind}.md").read_text())[1:]
    numbered = dict(zip(parts[::2], parts[1::2], strict=True))
    rows = {f"{number}.{row}" for number, text in numbered.items() for row in ROW.findall(text)}
    return frozenset(numbered) | rows


def _unresolved(text: str) -> list[str]:
    kind, wrong = "", list[str]()
    for named, section in CITED.findall(text):
        kind = named or kind
        kinds = [kind] if kind else ["raycluster", "rayservice", "rayjob"]
        if section and not any(section in _sections(each) for each in kinds):
            wrong.append(f"§{section} of {' or '.join(kinds)}")
    return wrong


def test_every_cited_section_is_there() -> None:
    paths = [
        path
        for folder in ("services", "libs", "tests")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    found = {str(path): _unresolved(path.read_text()) for path in paths if path != Path(__file__)}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_a_section_that_is_not_there_is_found() -> None:
    assert _unresolved("Spec rayservice §8.3, §17.13, §99.1; spec raycluster §12.4") == [
        "§99.1 of rayservice"
    ]
