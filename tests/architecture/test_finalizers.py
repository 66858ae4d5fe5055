"""Each finalizer of raybus has a row, with its limit, in the table of finalizers."""

from pathlib import Path

from common import labels

PAGE = Path(__file__).parents[2] / "docs/ownership.md"


def test_the_table_of_finalizers_has_each_of_them_with_a_limit() -> None:
    ours = {value for name, value in vars(labels).items() if name.endswith("_FINALIZER")}
    section = PAGE.read_text().partition("## Finalizers\n")[2]
    rows = [row.split("|") for row in section.splitlines() if row.startswith("| `")]
    named = {cell[1].strip().strip("`"): cell[4].strip() for cell in rows}
    assert named.keys() == ours
    assert all(named.values())
