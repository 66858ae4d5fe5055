"""The goals of all benchmarks and their results. `make bench` ends with this table.

    raybus-dev bench goals [-o json]

Each benchmark writes its results to `build/bench/goals`. The exit code is 1 if a goal is missed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from bench import report
from bench.report import OUTPUT, emit

FOLDER: Final = OUTPUT / "goals"


class FigureGoal(msgspec.Struct, frozen=True, kw_only=True):
    """A measured figure and its goal, both as text for people."""

    figure: str
    value: str
    goal: str
    is_reached: bool | None
    """Whether the goal is reached; None if it is not judged, for example without a peer."""

    @property
    def verdict(self) -> str:
        """The word that the table shows for the result."""
        return {True: "reached", False: "missed", None: "not judged"}[self.is_reached]


class JudgedGoals(msgspec.Struct, frozen=True, kw_only=True):
    """The goals of one benchmark."""

    benchmark: str
    goals: list[FigureGoal]


class All(msgspec.Struct, frozen=True, kw_only=True):
    """The goals of every benchmark that has run."""

    benchmarks: list[JudgedGoals]

    @property
    def missed(self) -> list[FigureGoal]:
        return [
            goal
            for benchmark in self.benchmarks
            for goal in benchmark.goals
            if goal.is_reached is False
        ]


def judged(benchmark: str, goals: Sequence[FigureGoal], *, folder: Path = FOLDER) -> int:
    """Store the goals of a benchmark and print the missed ones.

    Return the exit code: 1 if a goal was missed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{benchmark}.json").write_bytes(
        msgspec.json.encode(JudgedGoals(benchmark=benchmark, goals=list(goals))) + b"\n"
    )
    missed = [goal for goal in goals if goal.is_reached is False]
    for goal in missed:
        emit(f"missed: {goal.figure}: {goal.value} (goal: {goal.goal})")
    return 1 if missed else 0


def read(folder: Path = FOLDER) -> All:
    """Read the goals that benchmarks have stored in `folder`, ordered by the benchmark's name."""
    files = sorted(folder.glob("*.json"))
    return All(
        benchmarks=[msgspec.json.decode(file.read_bytes(), type=JudgedGoals) for file in files]
    )


def table(goals: All) -> Table:
    """Build the table of all goals."""
    shown = Table(
        "benchmark", "figure", "measured", "goal", "", title="goals", title_justify="left"
    )
    for benchmark in goals.benchmarks:
        for index, goal in enumerate(benchmark.goals):
            shown.add_row(
                benchmark.benchmark if index == 0 else "",
                goal.figure,
                goal.value,
                goal.goal,
                goal.verdict,
            )
        shown.add_section()
    return shown


def main() -> int:
    """Print the table of all goals. Return 1 if a goal is missed or no benchmark has run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the goals"
    )
    options = parser.parse_args()
    goals = read()
    if not goals.benchmarks:
        emit("no benchmark has run: make bench")
        return 1
    report.show(goals, lambda: table(goals), form=options.o, width=150)
    return 1 if goals.missed else 0


if __name__ == "__main__":
    sys.exit(main())
