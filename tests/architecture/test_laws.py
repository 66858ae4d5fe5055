"""Every law in the catalogue has a name of its own and a source that exists."""

import re
from typing import Any

import pytest

from support.laws import Law
from support.laws.catalogue import LAWS
from support.manifests import ROOT

DOCS = ROOT / "docs"
PAGES = {"design rules": "architecture.md", "threat model": "security/threat-model.md"}


def exists(source: str) -> bool:
    """Return whether a section, an ADR or a page is there."""
    if section := re.fullmatch(r"(raycluster|rayservice|rayjob) §([\d.]+)", source):
        text = (DOCS / "spec" / f"{section[1]}.md").read_text()
        return re.search(rf"^#+ {re.escape(section[2])}\.? ", text, re.MULTILINE) is not None
    if number := re.fullmatch(r"ADR (\d+)", source):
        return any((DOCS / "adr").glob(f"{int(number[1]):04}-*.md"))
    return (DOCS / PAGES.get(source, source)).is_file()


@pytest.mark.parametrize("evidence", LAWS)
def test_each_law_has_a_name_of_its_own(evidence: str) -> None:
    names = [law.name for law in LAWS[evidence]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "law", [law for laws in LAWS.values() for law in laws], ids=lambda law: law.name
)
def test_each_law_has_a_source(law: Law[Any]) -> None:
    assert [each for each in law.source.split(", ") if not exists(each)] == []
    assert law.reads


def test_a_source_that_is_not_there_is_noticed() -> None:
    assert not exists("ADR 999")
    assert not exists("nowhere.md")
