"""A how-to begins with the result for its reader, and its headings are tasks.

The same holds for the parts of the tutorial.
"""

import re
from pathlib import Path

import pytest

from support.manifests import ROOT

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PARTS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TASKS = re.compile(
    r"(Add|Apply|Ask|Assemble|Build|Change|Check|Choose|Compare|Compute|Confine|Decide|Deploy|Detect|Drain|Execute|Find|Follow|Grant|Handle|Install|Keep|Know|Limit"
    r"|Make|Meet|Monitor|Observe|Plan|Prepare|Preview|Promote|Release|Remove|Renew|Replace|Retry|Return|Roll|Run|Scale|Schedule|Secure|Send|Serve|Set|Show|Sign|Size|Solve|Start|Subscribe|Suspend|Switch|Test|Try|Upgrade|Use|Verify|Write)\b"
)
"""Verbs that a heading may begin with. Add a verb if it names a task."""


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_begins_with_its_result(page: Path) -> None:
    title, _, text = page.read_text().partition("\n\n")
    assert title.startswith("# ")
    assert text.startswith("At the end of this page ")


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_each_heading_of_a_how_to_is_a_task(page: Path) -> None:
    headings = re.findall(r"^#+ (.+)", FENCE.sub("", page.read_text()), re.MULTILINE)
    assert [each for each in headings if not TASKS.match(each)] == []


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_first_page_leads_to_each_how_to(page: Path) -> None:
    assert f"(how-to/{page.name})" in (ROOT / "docs" / "index.md").read_text()


def test_the_tutorial_has_five_parts_that_begin_with_their_result() -> None:
    assert [page.name[0] for page in PARTS] == ["1", "2", "3", "4", "5"]
    overview = (ROOT / "docs" / "tutorial.md").read_text()
    for page in PARTS:
        assert page.read_text().partition("\n\n")[2].startswith("At the end of this part ")
        assert f"(tutorial/{page.name})" in overview


@pytest.mark.parametrize(
    "heading",
    [
        "Check the cluster first",
        "Install from published images",
        "Install from your own images",
        "Install without a network",
        "Upgrade",
        "Uninstall",
    ],
)
def test_the_installation_has_each_path(heading: str) -> None:
    assert re.search(
        rf"^##+ {heading}$", (ROOT / "docs" / "installation.md").read_text(), re.MULTILINE
    )
