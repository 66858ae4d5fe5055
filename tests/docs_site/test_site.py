"""The site that `make docs` has built contains every page of the navigation.

No page loads anything from another host.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from support.manifests import ROOT

SITE = ROOT / "build" / "docs"
PAGES = sorted(SITE.rglob("*.html"))
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "use": "href",
}
STYLE_URL = re.compile(r"""url\(\s*["']?(?:https?:)?//""")
STYLE_IMPORT = re.compile(r"""@import\s+["'](?:https?:)?//""")
FETCHED_FROM_ELSEWHERE = ("mermaid", "giscus", "arithmatex")
"""Classes that make the theme's script load something from a content network."""


class _Loads(HTMLParser):
    """Collects what a browser loads with a page, and the classes of its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.classes.update(held.get("class", "").split())
        if tag == "link" and held.get("rel") in {"canonical", "next", "prev"}:
            return
        if tag in LOADED and LOADED[tag] in held:
            self.addresses.append(held[LOADED[tag]])


def _read(page: Path) -> _Loads:
    loads = _Loads()
    loads.feed(page.read_text())
    return loads


def _styles() -> Iterator[str]:
    yield from (path.read_text() for path in (*SITE.rglob("*.css"), *PAGES))


def test_every_page_is_there() -> None:
    sources = {
        path.relative_to(ROOT / "docs").with_suffix(".html")
        for path in (ROOT / "docs").rglob("*.md")
    }
    made = {page.relative_to(SITE) for page in PAGES}
    missing = {
        path.with_name("index.html") if path.name == "README.html" else path for path in sources
    } - made
    assert missing == set(), "run 'make docs' first"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(SITE)) for page in PAGES])
def test_a_page_loads_nothing_from_elsewhere(page: Path) -> None:
    loads = _read(page)
    assert [each for each in loads.addresses if re.match(r"(https?:)?//", each)] == []
    assert loads.classes & set(FETCHED_FROM_ELSEWHERE) == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(SITE)) for page in PAGES])
def test_what_a_page_loads_is_part_of_the_site(page: Path) -> None:
    addresses = (
        each.partition("?")[0].partition("#")[0]
        for each in _read(page).addresses
        if not each.startswith("data:")
    )
    base = SITE if page.name == "404.html" else page.parent
    places = [
        (SITE / each.removeprefix("/") if each.startswith("/") else base / each)
        for each in addresses
        if each
    ]
    assert [str(place) for place in places if not place.exists()] == []


def test_no_style_loads_a_font_or_a_picture_from_elsewhere() -> None:
    assert [
        text[:80] for text in _styles() if STYLE_URL.search(text) or STYLE_IMPORT.search(text)
    ] == []
