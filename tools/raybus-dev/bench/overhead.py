"""Compares what two operators add to the floor: the cost of the same pods without an operator.

Most of a scale-up's wall time, and of the API server's work, is this floor. A ratio of totals would
therefore hide what an operator adds.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

import msgspec
from rich.table import Table

from bench.goals import FigureGoal
from bench.scale_up import ScaleUpFigures

API_SERVER: Final = "kube-apiserver"


class OverheadFigure(msgspec.Struct, frozen=True):
    """A figure to which an operator adds something, such as CPU of the API server.

    `max_ratio` is the goal: raybus may add at most this many times what the peer adds.
    """

    label: str
    value: Callable[[ScaleUpFigures], float]
    max_ratio: float


FIGURES: Final = (
    OverheadFigure("wall time", lambda figures: figures.wall, 0.7),
    OverheadFigure(
        "CPU of the API server", lambda figures: figures.control_plane_cpu.get(API_SERVER, 0.0), 0.6
    ),
    OverheadFigure("bytes from the API server", lambda figures: figures.server_bytes, 0.5),
    OverheadFigure("CPU of its own processes", lambda figures: figures.cpu_seconds, 0.9),
)


class OverheadRound(msgspec.Struct, frozen=True, kw_only=True):
    """One round: raybus (`own`), another operator (`peer`), pods without an operator (`floor`)."""

    floor: ScaleUpFigures
    own: ScaleUpFigures
    peer: ScaleUpFigures


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """What raybus adds to one figure of the pods alone, divided by what the peer adds.

    There is one ratio a round. A round has none if the peer seems to add nothing, which noise can
    cause.
    """

    figure: str
    ratios: list[float]
    max_ratio: float

    @property
    def goal(self) -> FigureGoal:
        """The goal of this figure. The median of all rounds decides."""
        value = "no round in which the peer added anything"
        if self.ratios:
            low, high = min(self.ratios), max(self.ratios)
            value = f"{median(self.ratios):.2f} ({low:.2f} to {high:.2f})"
        return FigureGoal(
            figure=f"overhead, {self.figure}",
            value=value,
            goal=f"{self.max_ratio:g} × the peer's",
            is_reached=median(self.ratios) <= self.max_ratio if self.ratios else None,
        )


def compute(rounds: Sequence[OverheadRound]) -> list[Overhead]:
    """Return, for each of `FIGURES`, what raybus adds relative to what the peer adds."""
    return [
        Overhead(
            figure=figure.label,
            ratios=[
                (figure.value(bench_round.own) - figure.value(bench_round.floor)) / added
                for bench_round in rounds
                if (added := figure.value(bench_round.peer) - figure.value(bench_round.floor)) > 0
            ],
            max_ratio=figure.max_ratio,
        )
        for figure in FIGURES
    ]


def compute_by_program(
    floors: Sequence[ScaleUpFigures], operators: Sequence[ScaleUpFigures]
) -> dict[str, float]:
    """Return what an operator adds to each program's processor time, in ms per cluster.

    `floors` and `operators` hold the figures of the same rounds; the median round counts. A program
    that needs less time with the operator than in the floor is left out.
    """
    programs = dict.fromkeys(name for figures in operators for name in figures.cpu_of_programs)
    added = {
        program: median(
            1000 * (own.cpu_of_programs.get(program, 0.0) / own.clusters)
            - 1000 * (floor.cpu_of_programs.get(program, 0.0) / floor.clusters)
            for floor, own in zip(floors, operators, strict=True)
        )
        for program in programs
    }
    return {program: milliseconds for program, milliseconds in added.items() if milliseconds > 0}


def build_table(overheads: Sequence[Overhead]) -> Table:
    """Build the table of overheads: the median, and the lowest and highest round."""
    rounds = max((len(overhead.ratios) for overhead in overheads), default=0)
    table = Table(
        "overhead = (raybus - floor) / (peer - floor)",
        "median (lowest to highest)",
        "goal",
        "",
        title=f"{rounds} rounds",
        title_justify="left",
    )
    for overhead in overheads:
        goal = overhead.goal
        table.add_row(overhead.figure, goal.value, goal.goal, goal.verdict)
    return table
