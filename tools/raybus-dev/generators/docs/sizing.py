"""The table of docs/how-to/sizing.md: the effect of surge, step and interval on an upgrade.

The table is computed by a simulation of traffic-manager's decisions.
"""

from datetime import timedelta
from typing import Final

from common.upgrade.controls import Policy
from generators.docs import markdown
from raybus_cli.planning import policies, steps

BEGIN: Final = "<!-- computed by the code: begin -->"
END: Final = "<!-- computed by the code: end -->"
RECORDED: Final = "<!-- recorded: begin -->"
RECORDED_END: Final = "<!-- recorded: end -->"
_TRIED: Final = (
    (100, 100, 1, 0, "the shortest duration, if a second cluster fits"),
    (100, 25, 60, 0, "few steps, with time to observe each"),
    (50, 25, 10, 0, "half a cluster more"),
    (25, 25, 60, 0, "a quarter more"),
    (20, 10, 30, 0, "a fifth more, small steps"),
    (10, 5, 30, 0, "one node in ten more, very small steps"),
    (10, 10, 30, 0, "the same surge with the largest steps"),
    (0, 0, 30, 20, "a full cluster, `raybus.io/max-unavailable-percent: 20`"),
    (0, 0, 30, 34, "a full cluster of three nodes, 34"),
)
"""The inputs of each row: surge, step, interval in seconds, unavailable percent, and purpose."""


def table() -> str:
    """Return the table of docs/how-to/sizing.md."""
    rows = [_row(*tried) for tried in _TRIED]
    headings = ("surge", "step", "interval", "moves", "traffic takes", "capacity of both", "for")
    return "\n".join([BEGIN, "", *markdown.table(headings, rows), "", END])


def recorded(plan: str) -> str:
    """Return the last paragraph of a recorded plan, which shows the costs, as Markdown."""
    return "\n".join(
        [RECORDED, "", "```text", plan.strip().split("\n\n")[-1], "```", "", RECORDED_END]
    )


def _row(surge: int, step: int, interval: int, unavailable: int, what: str) -> tuple[str, ...]:
    length = timedelta(seconds=interval)
    moved = step or Policy(unavailable=unavailable).carried(unavailable)
    rollout = steps.simulate(
        Policy(surge=surge, step=moved, interval=length, unavailable=unavailable)
    )
    taken = policies.format_duration(rollout.length.total_seconds())
    capacity = f"{rollout.min_capacity} to {rollout.max_capacity} %"
    return str(surge), str(step), str(interval), str(len(rollout.weights)), taken, capacity, what
