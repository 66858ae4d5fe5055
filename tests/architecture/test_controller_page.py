"""docs/how-to/controller.md quotes the example controller completely, and the example has the length that the page promises."""

import re
from typing import Final

from support.manifests import ROOT

PAGE: Final = ROOT / "docs" / "how-to" / "controller.md"
EXAMPLE: Final = ROOT / "examples" / "controller" / "dashboard_annotation.py"
LINES: Final = 93
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_code_of_the_page_in_its_order_is_the_file() -> None:
    quoted = "\n\n".join(BLOCK.findall(PAGE.read_text()))
    assert quoted == EXAMPLE.read_text()


def test_the_file_is_as_short_as_the_page_promises() -> None:
    assert f"in {LINES} lines" in " ".join(PAGE.read_text().split())
    assert len(EXAMPLE.read_text().splitlines()) <= LINES


def test_the_page_names_the_file() -> None:
    assert str(EXAMPLE.relative_to(ROOT)) in PAGE.read_text()
