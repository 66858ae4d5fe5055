"""Every command of the README and the tutorial is run by a test.

Either the test that types all commands runs it, or the test that the table names.
"""

from pathlib import Path

import pytest

from support.docs import commands, proven
from support.manifests import ROOT


@pytest.mark.parametrize(("command", "where"), proven.PROVEN.items())
def test_what_is_not_typed_is_on_a_page_and_run_elsewhere(command: str, where: str) -> None:
    path, _, what = where.partition(": ")
    assert what in (ROOT / path).read_text()
    assert command in {each.text for page in proven.PAGES for each in commands.of(page)}


def test_a_page_names_the_command_to_type(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ one --x \\\n    --y   # why\nwhat it prints\n$ two\n```\n```sh\nthree\n```\n```text\n$ no\n```\n"
    )
    assert [each.text for each in commands.of(page)] == ["one --x     --y", "two", "three"]
