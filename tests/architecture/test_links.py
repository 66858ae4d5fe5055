"""Every link between pages leads somewhere, headings included; every page of the site is in its navigation.

The site's generator checks the same for docs/ when it builds (`make docs`); this needs no generator and covers the other pages as well.
"""

import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from raybus_cli.doctor.check import Hint
from support.manifests import ROOT

DOCS = ROOT / "docs"
Nav: TypeAlias = "str | list[Nav] | dict[str, Nav]"
"""A page, or pages under titles."""
SKIPPED = {"build"}
"""Folders to skip, besides those that begin with a dot."""
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def _pages() -> list[Path]:
    folders = (
        path
        for path in ROOT.iterdir()
        if path.is_dir() and path.name not in SKIPPED and path.name[0] != "."
    )
    return sorted(
        [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    )


PAGES = _pages()


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return frozenset(_slug(re.sub(r"\]\([^)]*\)", "", text)) for text in headings)


def _slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _wrong(page: Path) -> list[str]:
    text = CODE.sub("", FENCE.sub("", page.read_text()))
    links = (link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link))
    return [f"{link}: {why}" for link in links if (why := _fault(page, link))]


def _fault(page: Path, link: str) -> str:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return "there is no such file"
    if DOCS in page.parents and DOCS not in target.parents:
        return "a page of the site cannot link out of docs/; name the path in code"
    if anchor and anchor not in _anchors(target):
        return f"{target.name} has no such heading; it has {', '.join(sorted(_anchors(target)))}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    assert _wrong(page) == []


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One heading\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](gone.md) [b](other.md#no-heading) [c](other.md#one-heading) `[d](gone.md)` [e](https://gone.example)\n"
    )
    assert [each.split(":")[0] for each in _wrong(page)] == ["gone.md", "other.md#no-heading"]


def test_the_navigation_names_every_page_once() -> None:
    nav: Nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = _leaves(nav)
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def _leaves(entry: Nav) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry if isinstance(entry, list) else list(entry.values())
    return [leaf for part in parts for leaf in _leaves(part)]


@pytest.mark.parametrize("hint", list(Hint))
def test_a_hint_of_doctor_leads_to_a_heading(hint: Hint) -> None:
    assert _fault(ROOT / "README.md", hint) == ""
