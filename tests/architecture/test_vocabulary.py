"""Retired words stay retired: a figure of speech or a private word has a standard term, and a failure names the file, the line and the term."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.manifests import ROOT

RETIRED: Final = {
    # Control loop
    r"look(s|ed|ing)?(?! up)": "reconcile, read or check",
    r"wak(e|es|ing|en)|woke(n)?": "enqueue or requeue",
    r"deeds?|todos?": "action",
    r"carriers?": "executor",
    r"intake": "informer cache",
    r"forests?": "owner graph",
    r"news|announcements?": "event or condition update",
    r"old cop(y|ies)|old words?": "stale cache",
    r"sightings?": "lease observation",
    r"g(ive|ives|iven|ave|iving) (up|away)": "release, abort or lose",
    # Bus
    r"tell(s|ing)?|told": "report or publish",
    r"says?|said|saying": "report, contain or publish",
    r"hear(s|d|ing)?": "receive or subscribe",
    r"speak(s|ing)?|spoken": "publish",
    r"words?": "message, reason or term",
    r"outsiders?": "external consumer",
    r"what waits": "outbox",
    # Serving and traffic
    r"stor(y|ies)": "upgrade, rollout or golden file",
    r"settled": "active or complete",
    r"can(not)? be carried": "ready capacity or not-ready reason",
    r"goes back": "roll back",
    r"proofs?|doubt(s|ed)?": "ready capacity, proven capacity or not-ready reason",
    r"leaving": "draining",
    r"st(and|ands|ood) in (the|its|their) way|in its way": "blocking reason",
    r"g(et|ets|ot|etting) on": "make progress (else: stalled)",
    r"growing side|other side": "scale-up side, scale-down side",
    r"impostors?|believ(e|es|ed|ing)": "identity check",
    r"patience|pace": "backoff or poll interval",
    r"way in": "ingress or route",
    # Tests and tools
    r"rings?": "test suite or stage",
    r"doors?": "fault-injection proxy",
    r"worlds?|streets?|plots?|air|ears?": "simulation, harness or environment",
    r"crowds?|neighbou?rs?": "background load or other clusters",
    r"mend(s|ed|ing)?": "fix or correct",
    # Sentences
    r"who|whose|whom|whoever|the ones? that": "the subject by its name",
}
"""A word, with its forms, to the term for it; whole words in any case."""

QUOTES: Final = "tests/architecture/test_vocabulary.py"
"""This file, which has to name the words."""
HISTORY: Final = "CHANGELOG.md"
SUFFIXES: Final = {".md", ".py", ".sh", ".yaml", ".js", ".css", ".html", ".txt"}
GENERATED: Final = {"build", "node_modules"}
_ANY: Final = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b", re.IGNORECASE)
_EACH: Final = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): term for pattern, term in RETIRED.items()}
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_QUOTED: Final = re.compile(r"`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->|[\w./-]+\.(?:py|md|txt|json|yaml|svg|png)\b")
"""Code, addresses, file names and quotations: they have the words of what they name."""
_FIXED: Final = re.compile(r'\bCOMP_WORDS\b|"(?:leaving|settled|told|DrainNotTold)"')
"""Values that stay, since shells, users' scripts, stored records, dashboards and Event filters read them.

In this order: a variable of bash, a role in `raybus get -o json`, a field of a stored record, a label value of a metric, the reason
of an Event.
"""
_CASE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
"""Where the words of an identifier meet."""


def _files() -> list[Path]:
    folders = (path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in GENERATED)
    nested = (path for folder in folders for path in folder.rglob("*") if not GENERATED & set(path.parts))
    files = (path for path in (*ROOT.glob("*.md"), *nested) if path.suffix in SUFFIXES and path.is_file())
    return sorted(path for path in files if _name(path) not in {QUOTES, HISTORY})


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES: Final = _files()


def _prose(path: Path) -> str:
    """Return a file's text with the same lines: of a page without code, of code with identifiers as words."""
    text = path.read_text()
    if path.suffix != ".md":
        return _CASE.sub(" ", _FIXED.sub("", text))
    return _QUOTED.sub("", _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text))


def _findings(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if _ANY.search(line):
            yield from (
                f"{number}: {found[0]!r}, use {term}" for each, term in _EACH.items() for found in each.finditer(line)
            )


@pytest.mark.parametrize("path", FILES, ids=map(_name, FILES))
def test_a_file_has_no_retired_word(path: Path) -> None:
    assert [f"{_name(path)}:{finding}" for finding in _findings(_prose(path))] == []


def test_a_retired_word_is_found_with_its_line_and_its_term(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Look up a field.\n```\nthe story\n```\n`told` is code; [a page](story.md)\nThe service is TOLD.\n")
    assert list(_findings(_prose(page))) == ["6: 'TOLD', use report or publish"]


def test_the_parts_of_an_identifier_are_words(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("look_up = lookup\nlook_again_at = ServeStory\n")
    assert list(_findings(_prose(module))) == [
        "2: 'look', use reconcile, read or check",
        "2: 'Story', use upgrade, rollout or golden file",
    ]
