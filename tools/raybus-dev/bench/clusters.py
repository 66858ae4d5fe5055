"""How quickly do N RayClusters become ready, and at what cost? Optionally compared with a peer.

    make bench-clusters [N=300] [ROUNDS=1] [PEER='CMD'] [PEER_CRDS=DIR] [IDLE=MINUTES] [FAIR=1]

A peer is another operator. The API server, etcd, scheduler, controller-manager and NATS are real;
the pods are simulated (kwok); raybus's services run as `raybus up` runs them. The operators run one
after the other, each on a new control plane. Machines differ and are shared, so quote ratios, and
the median of three rounds.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench import background, chart, contenders, fairness, overhead, report, scale_up
from bench.chart import Bar, ReadyLine
from bench.contenders import Contender, Raybus
from bench.fairness import Fairness
from bench.goals import FigureGoal, judged
from bench.overhead import API_SERVER, Overhead, OverheadRound
from bench.report import OUTPUT, emit
from bench.scale_up import ScaleUpFigures

MAX_WAIT: Final = 1.0
"""Goal: seconds within which 99 % of new clusters get a head pod during a large scale-up."""


class FigureRow(msgspec.Struct, frozen=True):
    """A row of the table: a measured figure, and its limit if it has a goal."""

    label: str
    value: Callable[[ScaleUpFigures], float]
    form: str = "{:.2f}"
    goal: str = ""
    limit: Callable[[ScaleUpFigures, ScaleUpFigures | None], float | None] = lambda _own, _peer: (
        None
    )
    """Maximum for raybus's figure; None if there is none, for example without a peer.

    It is computed from the figures of raybus and of the peer in the same round.
    """
    is_shown_for_floor: bool = False
    """Whether the table also shows the figure of the floor: the same pods without an operator."""


def _build_peer_limit(
    value: Callable[[ScaleUpFigures], float], most: float
) -> Callable[[ScaleUpFigures, ScaleUpFigures | None], float | None]:
    return lambda _own, peer: None if peer is None else value(peer) * most


def _get_server_ms(figures: ScaleUpFigures) -> float:
    return figures.control_plane_cpu.get(API_SERVER, 0.0) / figures.clusters * 1000


def _get_cpu_ms(figures: ScaleUpFigures) -> float:
    return figures.cpu_seconds / figures.clusters * 1000


_ROWS: Final = (
    FigureRow(
        "wall time until all are ready",
        lambda figures: figures.wall,
        "{:.2f} s",
        is_shown_for_floor=True,
    ),
    FigureRow(
        "a cluster from its creation to ready, p50",
        lambda figures: figures.latency_p50,
        "{:.2f} s",
        "0.5 × peer",
        _build_peer_limit(lambda figures: figures.latency_p50, 0.5),
    ),
    FigureRow(
        "… p99",
        lambda figures: figures.latency_p99,
        "{:.2f} s",
        "0.95 × peer",
        _build_peer_limit(lambda figures: figures.latency_p99, 0.95),
    ),
    FigureRow(
        "the first tenth ready, since the first",
        lambda figures: figures.first_tenth,
        "{:.2f} s",
        "2 s",
        lambda _own, _peer: 2.0,
        is_shown_for_floor=True,
    ),
    FigureRow(
        "API requests per cluster, Events included", lambda figures: figures.requests_per_cluster
    ),
    FigureRow("… of which status writes", lambda figures: figures.status_writes_per_cluster),
    FigureRow("CPU of all its processes", lambda figures: figures.cpu_seconds, "{:.2f} s"),
    FigureRow("… per cluster", _get_cpu_ms, "{:.1f} ms"),
    FigureRow(
        "CPU of the API server per cluster",
        _get_server_ms,
        "{:.1f} ms",
        is_shown_for_floor=True,
    ),
    FigureRow(
        "bytes from the API server per cluster",
        lambda figures: figures.server_bytes / figures.clusters / 1024,
        "{:.0f} KiB",
        is_shown_for_floor=True,
    ),
    FigureRow(
        "… of etcd, scheduler, controllers and kwok",
        lambda figures: (
            sum(figures.control_plane_cpu.values()) / figures.clusters * 1000
            - _get_server_ms(figures)
        ),
        "{:.1f} ms",
        is_shown_for_floor=True,
    ),
    FigureRow(
        "peak PSS of all its processes",
        lambda figures: figures.peak_pss,
        "{:.0f} MiB",
        "180 MiB",
        lambda _own, _peer: 180,
    ),
    FigureRow(
        "growth of all its processes per pod",
        lambda figures: figures.kib_per_pod,
        "{:.1f} KiB",
        "22 KiB",
        lambda _own, _peer: 22,
    ),
    FigureRow(
        "… a fixed computation meanwhile",
        lambda figures: figures.computation_ms,
        "{:.2f} ms",
        is_shown_for_floor=True,
    ),
    FigureRow(
        "a pod in a reconciler's cache", lambda figures: figures.kib_per_cached_pod, "{:.1f} KiB"
    ),
)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements one after the other: pods without an operator (`floor`), and each operator."""

    floor: ScaleUpFigures
    contenders: list[ScaleUpFigures]


class ClustersResult(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one run of the benchmark."""

    rounds: list[Round]
    fairness: list[Fairness]


class ClustersOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line. `is_fair`: also measure waits during a large scale-up."""

    clusters: int
    contenders: list[Contender]
    rounds: int = 1
    idle_minutes: float = 0.0
    is_fair: bool = False


async def run(wanted: ClustersOptions) -> ClustersResult:
    """Run all measurements in order; report the progress on standard error."""
    rounds = [await _measure_round(wanted, number + 1) for number in range(wanted.rounds)]
    fair: list[Fairness] = []
    for contender in wanted.contenders if wanted.is_fair else []:
        emit(
            f"{wanted.clusters} clusters, one of {fairness.HUGE} workers, and small ones: "
            f"{contender.name}"
        )
        fair.append(await fairness.measure(contender, wanted.clusters))
        emit(f"{contender.name}: the longest wait for a head pod was {fair[-1].worst:.1f} s")
    return ClustersResult(rounds=rounds, fairness=fair)


async def _measure_round(wanted: ClustersOptions, number: int) -> Round:
    emit(f"round {number} of {wanted.rounds}, {wanted.clusters} clusters: the floor")
    floor = await scale_up.floor(wanted.clusters)
    figures: list[ScaleUpFigures] = []
    for contender in wanted.contenders:
        emit(f"round {number} of {wanted.rounds}, {wanted.clusters} clusters: {contender.name}")
        figures.append(
            await scale_up.measure(contender, wanted.clusters, idle_minutes=wanted.idle_minutes)
        )
        emit(f"{contender.name}: {figures[-1].wall:.1f} s, the floor {floor.wall:.1f} s")
    return Round(floor=floor, contenders=figures)


def show(result: ClustersResult) -> None:
    """Print the tables of figures and the ratios between the operators."""
    console, last = Console(width=120), result.rounds[-1]
    if last.contenders:
        console.print(_build_scale_up_table(result))
        for bench_round in result.rounds:
            _print_ratios(bench_round, console)
    if overheads := _list_overheads(result):
        console.print(overhead.build_table(overheads))
    for figures in last.contenders:
        console.print(
            f"{figures.name} asked: {_format_counts(figures.requests)}",
            soft_wrap=True,
            highlight=False,
        )
        if figures.idle is not None:
            writes = _format_counts(figures.idle.writes) or "none"
            reported = (
                f"{figures.name}, {figures.idle.minutes:g} idle minutes: writes {writes}, "
                f"{figures.idle.cpu_seconds:.1f} s CPU"
            )
            console.print(reported, highlight=False)
    for fair in result.fairness:
        console.print(_format_fairness(fair), highlight=False)


def picture(result: ClustersResult) -> str:
    """Draw, as SVG, how many clusters were ready after how long, in the median round."""
    middle = _find_median_round(result)
    lines = [
        ReadyLine(figures.name, figures.ready_at) for figures in (middle.floor, *middle.contenders)
    ]
    return chart.draw(lines, title=f"{middle.floor.clusters} RayClusters to ready")


def processors(result: ClustersResult) -> str:
    """Draw, as SVG, each program's processor time per cluster, in the median round."""
    middle = _find_median_round(result)
    rows = [
        Bar(figures.name, _get_cpu_by_program(figures))
        for figures in (middle.floor, *middle.contenders)
    ]
    return chart.bars(
        rows,
        title=f"processor time for each of {middle.floor.clusters} RayClusters of 4 pods",
        unit="ms",
    )


def added_processors(result: ClustersResult) -> str:
    """Draw, as SVG, the processor time that each operator adds to that of the pods, by program."""
    floors = [bench_round.floor for bench_round in result.rounds]
    columns = zip(*(bench_round.contenders for bench_round in result.rounds), strict=True)
    rows = [
        Bar(figures[0].name, overhead.compute_by_program(floors, figures)) for figures in columns
    ]
    return chart.bars(
        rows,
        title=f"processor time added to the floor for each of {floors[0].clusters} RayClusters",
        unit="ms",
    )


def _get_cpu_by_program(figures: ScaleUpFigures) -> dict[str, float]:
    return {
        name: 1000 * seconds / figures.clusters
        for name, seconds in figures.cpu_of_programs.items()
        if seconds > 0
    }


def _find_median_round(result: ClustersResult) -> Round:
    """Return the round with the median wall time.

    The wall time is that of the first operator; without operators, that of the pods alone (the
    floor).
    """
    ordered = sorted(
        result.rounds, key=lambda bench_round: [*bench_round.contenders, bench_round.floor][0].wall
    )
    return ordered[len(ordered) // 2]


def _build_scale_up_table(result: ClustersResult) -> Table:
    rounds, last = result.rounds, result.rounds[-1]
    title = (
        f"{last.floor.clusters} RayClusters of 4 pods; floor: the same pods and Services, "
        "posted by a script"
    )
    if len(rounds) > 1:
        title += f"; medians of {len(rounds)} rounds"
    table = Table(
        "",
        "floor",
        *(figures.name for figures in last.contenders),
        "goal",
        title=title,
        title_justify="left",
    )
    for row in _ROWS:
        floor = (
            _format_row(row, [bench_round.floor for bench_round in rounds])
            if row.is_shown_for_floor
            else ""
        )
        columns = zip(*(bench_round.contenders for bench_round in rounds), strict=True)
        table.add_row(
            row.label,
            floor,
            *(_format_row(row, figures) for figures in columns),
            _format_goal(row, result),
        )
    return table


def _format_row(row: FigureRow, rounds: Sequence[ScaleUpFigures]) -> str:
    value = median(row.value(figures) for figures in rounds)
    return row.form.format(value) if value else ""


def _get_ratio_to_limit(row: FigureRow, result: ClustersResult) -> float | None:
    """Return raybus's figure divided by its limit (median of all rounds); None without a limit."""
    shares: list[float] = []
    for own, *others in (bench_round.contenders for bench_round in result.rounds):
        limit = row.limit(own, others[0] if others else None)
        if limit is not None:
            shares.append(row.value(own) / limit)
    return median(shares) if shares else None


def _format_goal(row: FigureRow, result: ClustersResult) -> str:
    share = _get_ratio_to_limit(row, result)
    if share is None:
        return row.goal
    return f"{row.goal}: {'reached' if share <= 1 else f'missed by {share - 1:.0%}'}"


def goals(result: ClustersResult) -> list[FigureGoal]:
    """Return the results of all goals: of the rows, the overheads, and the wait for a head pod.

    The wait for a head pod during a large scale-up is included only if it was measured.
    """
    all_goals = [_judge_row(row, result) for row in _ROWS if row.goal]
    all_goals += [added.goal for added in _list_overheads(result)]
    for own in result.fairness[:1]:
        value = own.p99
        all_goals.append(
            FigureGoal(
                figure=(
                    f"the head pod of a new cluster beside a scale-up of {fairness.HUGE} "
                    "workers, p99"
                ),
                value=f"{value:.2f} s",
                goal=f"{MAX_WAIT:g} s",
                is_reached=value <= MAX_WAIT,
            )
        )
    return all_goals


def _list_overheads(result: ClustersResult) -> list[Overhead]:
    """Compare what raybus and the first peer add to the cost of the pods. Empty without a peer."""
    return (
        []
        if len(result.rounds[0].contenders) < 2
        else overhead.compute(
            [
                OverheadRound(
                    floor=bench_round.floor,
                    own=bench_round.contenders[0],
                    peer=bench_round.contenders[1],
                )
                for bench_round in result.rounds
            ]
        )
    )


def _judge_row(row: FigureRow, result: ClustersResult) -> FigureGoal:
    share = _get_ratio_to_limit(row, result)
    own, *others = (
        _format_row(row, figures)
        for figures in zip(*(bench_round.contenders for bench_round in result.rounds), strict=True)
    )
    beside = "".join(f", {other} of the peer" for other in others)
    return FigureGoal(
        figure=row.label,
        value=f"{own}{beside}",
        goal=row.goal,
        is_reached=None if share is None else share <= 1,
    )


def _print_ratios(bench_round: Round, console: Console) -> None:
    first, *others = bench_round.contenders
    reported = [f"{first.name} / floor {first.wall / bench_round.floor.wall:.2f}"]
    reported += [
        f"{first.name} / {other.name}: wall {first.wall / other.wall:.2f}, "
        f"CPU {first.cpu_seconds / other.cpu_seconds:.2f}, "
        f"API server {_get_server_ms(first) / _get_server_ms(other):.2f}, "
        f"the machine's time {first.computation_ms / other.computation_ms:.2f}, "
        f"requests {first.requests_per_cluster / other.requests_per_cluster:.2f}"
        for other in others
    ]
    console.print("; ".join(reported), highlight=False)


def _format_fairness(fairness: Fairness) -> str:
    def waits(values: list[float]) -> str:
        return f"{' '.join(f'{wait:.2f}' for wait in values) or 'none'}"

    return (
        f"{fairness.name}, new 1-worker clusters during a scale-up of {fairness.wall:.1f} s had "
        f"their head pod after at most {fairness.worst:.2f} s\n"
        f"  same namespace:  {waits(fairness.same_namespace)}\n"
        f"  other namespace: {waits(fairness.other_namespace)}"
    )


def _format_counts(by_kind: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in by_kind.items())


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    contenders.add_peer_options(parser)
    parser.add_argument(
        "--idle",
        metavar="MINUTES",
        type=float,
        default=0.0,
        help="observe idle writes for this long",
    )
    parser.add_argument(
        "--fair",
        action="store_true",
        help="also measure how long small clusters wait during a large scale-up",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=OUTPUT,
        help="folder of figures and pictures (build/bench)",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=int,
        default=1,
        help="number of rounds; medians are judged (1)",
    )
    options = background.parse_arguments(parser, arguments, count=300)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: measure at least once")
    options.peer = contenders.peer_of(options, parser)
    return options


def main() -> int:
    """Measure, print and write the figures. Return 1 if a goal is missed, else 0."""
    options = parse_arguments()
    peers: list[Contender] = [] if options.peer is None else [options.peer]
    wanted = ClustersOptions(
        clusters=options.n,
        contenders=[Raybus(), *peers],
        rounds=options.rounds,
        idle_minutes=options.idle,
        is_fair=options.fair,
    )
    result = report.measured(run(wanted))
    show(result)
    report.write(
        result,
        options.out / "clusters",
        picture=picture(result),
        others={"processors": processors(result), "added": added_processors(result)},
    )
    return judged("clusters", goals(result))


if __name__ == "__main__":
    sys.exit(main())
