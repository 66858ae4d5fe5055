"""How quickly do N RayClusters get ready, and at what cost; beside another operator, if one is named.

    make bench-clusters [N=300] [PEER='CMD'] [PEER_CRDS=DIR] [IDLE=MINUTES] [FAIR=1]

A real API server, etcd, scheduler, controller-manager and NATS; simulated pods (kwok); the services as `raybus up` runs
them. Each contender gets a fresh control plane, one after the other. Machines differ and are shared: quote the ratios.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench import chart, fairness, report, scale_up
from bench.chart import Line
from bench.contenders import Contender, Peer, Raybus
from bench.fairness import Fairness
from bench.report import OUTPUT, emit
from bench.scale_up import Figures

API_SERVER: Final = "kube-apiserver"


class Row(msgspec.Struct, frozen=True):
    """One figure of the table: its text, and as a number that must not exceed a limit."""

    label: str
    text: Callable[[Figures], str]
    goal: str = ""
    share: Callable[[Figures, Figures | None], float | None] = lambda _own, _peer: None
    """Returns the part of the limit that is used, of raybus and beside the peer; None where it cannot be known."""
    of_floor: bool = False
    """Whether the floor has it, too."""


def _beside(value: Callable[[Figures], float], most: float) -> Callable[[Figures, Figures | None], float | None]:
    return lambda own, peer: None if peer is None else value(own) / value(peer) / most


def _server_ms(found: Figures) -> float:
    return found.control_plane_cpu.get(API_SERVER, 0.0) / found.clusters * 1000


_ROWS: Final = (
    Row(
        "wall time until all are ready",
        lambda found: f"{found.wall:.2f} s",
        "0.85 × peer",
        _beside(lambda found: found.wall, 0.85),
        of_floor=True,
    ),
    Row(
        "a cluster from its creation to ready, p50",
        lambda found: f"{found.latency_p50:.2f} s" if found.latency_p50 else "",
        "0.6 × wall",
        lambda own, _peer: own.latency_p50 / own.wall / 0.6,
    ),
    Row("… p99", lambda found: f"{found.latency_p99:.2f} s" if found.latency_p99 else ""),
    Row(
        "the first tenth ready, since the first",
        lambda found: f"{found.first_tenth:.2f} s",
        "2 s",
        lambda own, _peer: own.first_tenth / 2.0,
        of_floor=True,
    ),
    Row("API requests per cluster, Events included", lambda found: f"{found.requests_per_cluster:.2f}"),
    Row("… of which status writes", lambda found: f"{found.status_writes_per_cluster:.2f}"),
    Row("CPU of all its processes", lambda found: f"{found.cpu_seconds:.2f} s"),
    Row(
        "… per cluster",
        lambda found: f"{found.cpu_seconds / found.clusters * 1000:.1f} ms",
        "1.0 × peer",
        _beside(lambda found: found.cpu_seconds, 1.0),
    ),
    Row(
        "CPU of the API server per cluster",
        lambda found: f"{_server_ms(found):.1f} ms",
        "0.75 × peer",
        _beside(_server_ms, 0.75),
        of_floor=True,
    ),
    Row(
        "… of etcd, scheduler, controllers and kwok",
        lambda found: f"{(sum(found.control_plane_cpu.values()) / found.clusters * 1000) - _server_ms(found):.1f} ms",
        of_floor=True,
    ),
    Row(
        "peak PSS of all its processes",
        lambda found: f"{found.peak_pss:.0f} MiB",
        "230 MiB",
        lambda own, _peer: own.peak_pss / 230,
    ),
    Row(
        "growth of all its processes per pod",
        lambda found: f"{found.kib_per_pod:.1f} KiB",
        "22 KiB",
        lambda own, _peer: own.kib_per_pod / 22,
    ),
    Row(
        "a pod in a reconciler's cache",
        lambda found: f"{found.kib_per_cached_pod:.1f} KiB" if found.kib_per_cached_pod else "",
    ),
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All that one call has measured."""

    floor: Figures
    contenders: list[Figures]
    fairness: list[Fairness]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    clusters: int
    contenders: list[Contender]
    idle_minutes: float = 0.0
    is_fair: bool = False


async def run(wanted: Wanted) -> Result:
    """Measure one thing after another, and print each."""
    emit(f"{wanted.clusters} clusters: the floor")
    floor = await scale_up.floor(wanted.clusters)
    figures: list[Figures] = []
    fair: list[Fairness] = []
    for contender in wanted.contenders:
        emit(f"{wanted.clusters} clusters: {contender.name}")
        figures.append(await scale_up.measure(contender, wanted.clusters, idle_minutes=wanted.idle_minutes))
        emit(f"{contender.name}: {figures[-1].wall:.1f} s, the floor {floor.wall:.1f} s")
        if wanted.is_fair:
            emit(f"{wanted.clusters} clusters, one of {fairness.HUGE} workers, and small ones: {contender.name}")
            fair.append(await fairness.measure(contender, wanted.clusters))
            emit(f"{contender.name}: the longest wait for a head pod was {fair[-1].worst:.1f} s")
    return Result(floor=floor, contenders=figures, fairness=fair)


def show(result: Result) -> None:
    """Print the figures."""
    console = Console(width=120)
    if result.contenders:
        console.print(_scale_up(result))
        _ratios(result, console)
    for found in result.contenders:
        console.print(f"{found.name} asked: {_counts(found.requests)}", soft_wrap=True, highlight=False)
        if found.idle is not None:
            writes = _counts(found.idle.writes) or "none"
            reported = f"{found.name}, {found.idle.minutes:g} idle minutes: writes {writes}, {found.idle.cpu_seconds:.1f} s CPU"
            console.print(reported, highlight=False)
    for fair in result.fairness:
        console.print(_fairness(fair), highlight=False)


def picture(result: Result) -> str:
    """Draw how many were ready after how long."""
    lines = [Line(found.name, found.ready_at) for found in (result.floor, *result.contenders)]
    return chart.draw(lines, title=f"{result.floor.clusters} RayClusters to ready")


def _scale_up(result: Result) -> Table:
    title = f"{result.floor.clusters} RayClusters of 4 pods; floor: the same pods and Services, posted by a script"
    names = (found.name for found in result.contenders)
    table = Table("", "floor", *names, "goal", title=title, title_justify="left")
    for row in _ROWS:
        own = row.text(result.floor) if row.of_floor else ""
        table.add_row(row.label, own, *(row.text(found) for found in result.contenders), _goal(row, result))
    return table


def _share(row: Row, result: Result) -> float | None:
    own, *others = result.contenders
    return row.share(own, others[0] if others else None) if row.goal else None


def _goal(row: Row, result: Result) -> str:
    share = _share(row, result)
    if share is None:
        return row.goal
    return f"{row.goal}: {'reached' if share <= 1 else f'missed by {share - 1:.0%}'}"


def missed(result: Result) -> list[str]:
    """Return the goals that raybus missed."""
    found = ((row, _share(row, result)) for row in _ROWS)
    return [f"{row.label}: {_goal(row, result)}" for row, share in found if share is not None and share > 1]


def _ratios(result: Result, console: Console) -> None:
    first, *others = result.contenders
    reported = [f"{first.name} / floor {first.wall / result.floor.wall:.2f}"]
    reported += [
        f"{first.name} / {other.name}: wall {first.wall / other.wall:.2f}, "
        f"CPU {first.cpu_seconds / other.cpu_seconds:.2f}, "
        f"requests {first.requests_per_cluster / other.requests_per_cluster:.2f}"
        for other in others
    ]
    console.print("; ".join(reported), highlight=False)


def _fairness(found: Fairness) -> str:
    def waits(values: list[float]) -> str:
        return f"{' '.join(f'{wait:.2f}' for wait in values) or 'none'}"

    return (
        f"{found.name}, new 1-worker clusters during a scale-up of {found.wall:.1f} s had their head pod after at most "
        f"{found.worst:.2f} s\n  same namespace:  {waits(found.same_namespace)}\n"
        f"  other namespace: {waits(found.other_namespace)}"
    )


def _counts(by_kind: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in by_kind.items())


def asked(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=300, help="RayClusters to create (300)")
    parser.add_argument(
        "--peer", metavar="CMD", default="", help="another operator's command line; it reads KUBECONFIG"
    )
    parser.add_argument("--peer-crds", metavar="DIR", type=Path, help="the definitions that the peer needs")
    parser.add_argument("--idle", metavar="MINUTES", type=float, default=0.0, help="watch that long for idle writes")
    parser.add_argument(
        "--fair", action="store_true", help="measure also how long small clusters wait among many others"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=OUTPUT, help="where figures and picture go (build/bench)"
    )
    found = parser.parse_args(arguments)
    if found.n < 1:
        parser.error(f"-n {found.n}: create at least one cluster")
    if found.peer_crds is not None and not found.peer_crds.is_dir():
        parser.error(f"--peer-crds {found.peer_crds}: no such folder")
    return found


def main() -> int:
    """Measure, print and write down; return 1 for a missed goal."""
    options = asked()
    contenders: list[Contender] = [Raybus()]
    if options.peer:
        contenders.append(Peer(options.peer, options.peer_crds))
    wanted = Wanted(clusters=options.n, contenders=contenders, idle_minutes=options.idle, is_fair=options.fair)
    result = report.measured(run(wanted))
    show(result)
    report.write(result, picture(result), options.out / "clusters")
    return report.judged(missed(result))


if __name__ == "__main__":
    sys.exit(main())
