"""docs/acceptance-*.md show which tests prove each acceptance case; `make golden` rewrites them."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from support.acceptance import SPECIFICATIONS, Evidence, page
from support.golden import Golden

ROOT = Path(__file__).parents[2]
MENTION = re.compile(r"acceptance|case[ _]")
"""Matches a file that may contain a mark or a test name by which a test proves a case."""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> list[Evidence]:
    """Collect the files that may prove a case, without running them."""
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if MENTION.search(path.read_text())
    ]
    target = tmp_path_factory.mktemp("acceptance") / "evidence.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        f"--acceptance={target}",
        *files,
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return msgspec.json.decode(target.read_bytes(), type=list[Evidence])


@pytest.mark.long  # it collects every stage anew
@pytest.mark.parametrize("specification", SPECIFICATIONS)
def test_the_page_matches_what_the_tests_prove(
    specification: str, evidence: list[Evidence], request: pytest.FixtureRequest
) -> None:
    pages = Golden(root=ROOT / "docs", update=bool(request.config.getoption("--update-golden")))
    pages.check(f"acceptance-{specification}.md", page(specification, evidence))
