"""The glossary is sorted, and each of its terms has a short meaning and a page that treats it (`test_links.py` follows the links)."""

import re
from typing import Final

import pytest

from support.manifests import ROOT

PAGE: Final = (ROOT / "docs" / "glossary.md").read_text()
TERMS: Final = dict(re.findall(r"^## (.+)\n\n((?:.+\n)+)", PAGE, re.MULTILINE))
LINK: Final = re.compile(r"\]\([^()\s]+\.md(#[a-z0-9-]+)?\)")
MAX_SENTENCES: Final = 2


def test_the_terms_are_sorted() -> None:
    found = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert found == sorted(found, key=str.casefold)
    assert found == list(TERMS), "a term needs one paragraph"


@pytest.mark.parametrize("term", TERMS)
def test_a_term_has_a_short_meaning_and_a_page(term: str) -> None:
    meaning = TERMS[term]
    assert LINK.search(meaning), f"{term}: link the page that treats it"
    assert len(re.findall(r"[.](?=\s)", meaning)) <= MAX_SENTENCES, (
        f"{term}: at most {MAX_SENTENCES} sentences"
    )
