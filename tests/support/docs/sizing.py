"""The table of docs/how-to/sizing.md: what surge, step and interval come to, told by traffic-manager's own decisions."""

from datetime import timedelta
from typing import Final

from raybus_cli.planning import picture, steps
from support.docs import markdown
from traffic_manager.migration.state import Policy

BEGIN: Final = "<!-- told by the code: begin -->"
END: Final = "<!-- told by the code: end -->"
RECORDED: Final = "<!-- recorded: begin -->"
RECORDED_END: Final = "<!-- recorded: end -->"
_TRIED: Final = (
    (100, 100, 1, 0, "as quick as it gets, if a second cluster fits"),
    (100, 25, 60, 0, "few steps with time to look at each"),
    (50, 25, 10, 0, "half a cluster more"),
    (25, 25, 60, 0, "a quarter more"),
    (20, 10, 30, 0, "a fifth more, small steps"),
    (10, 5, 30, 0, "one node in ten more, very small steps"),
    (10, 10, 30, 0, "as small a surge, with steps as large as it allows"),
    (0, 0, 30, 20, "a full cluster, `raybus.io/max-unavailable-percent: 20`"),
    (0, 0, 30, 34, "a full cluster of three nodes, 34"),
)
"""Surge, step, interval, percent that may be missing, and for whom that is."""


def table() -> str:
    """Write the table."""
    rows = [_row(*each) for each in _TRIED]
    headings = ("surge", "step", "interval", "moves", "traffic takes", "capacity of both", "for")
    return "\n".join([BEGIN, "", *markdown.table(headings, rows), "", END])


def recorded(plan: str) -> str:
    """Write what a recorded plan says of costs: its last paragraph."""
    return "\n".join([RECORDED, "", "```text", plan.strip().split("\n\n")[-1], "```", "", RECORDED_END])


def _row(surge: int, step: int, interval: int, unavailable: int, what: str) -> tuple[str, ...]:
    length = timedelta(seconds=interval)
    moved = step or Policy(unavailable=unavailable).carried(unavailable)
    story = steps.tell(Policy(surge=surge, step=moved, interval=length, unavailable=unavailable))
    taken = picture.length(round(story.length.total_seconds()))
    capacity = f"{story.least} to {story.most} %"
    return str(surge), str(step), str(interval), str(len(story.weights)), taken, capacity, what
