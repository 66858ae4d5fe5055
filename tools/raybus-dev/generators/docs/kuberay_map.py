"""Writes the table of differences in docs/kuberay-map.md, from `parity/differences.yaml`."""

from typing import Final

from parity import declared
from support.manifests import ROOT

PAGE: Final = ROOT / "docs" / "kuberay-map.md"
HEADING: Final = "## Intended differences\n"
END: Final = "\nEqual are:"


def page() -> str:
    """Return the text of docs/kuberay-map.md with a newly generated table of differences."""
    text = PAGE.read_text()
    before, _, rest = text.partition(HEADING)
    return f"{before}{HEADING}\n{_table()}{END}{rest.partition(END)[2]}"


def _table() -> str:
    rows = [
        (entry.topic, entry.kuberay, entry.raybus, entry.reason)
        for entry in declared.entries()
        if not entry.until
    ]
    lines = [("topic", "KubeRay", "raybus", "reason"), ("---",) * 4, *rows]
    return "".join(
        f"|{'|'.join(line)}|\n" if line[0] == "---" else f"| {' | '.join(line)} |\n"
        for line in lines
    )
