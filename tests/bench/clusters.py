"""How quickly do N RayClusters get ready, and at what cost; beside another operator, if one is named.

    make bench-clusters [N=300] [PEER='CMD'] [PEER_CRDS=DIR] [IDLE=MINUTES] [FAIR=1]

A real API server, etcd, scheduler, controller-manager and NATS; simulated pods (kwok); the services as `raybus up` runs
them. Each contender gets a fresh control plane, one after the other. Machines differ and are shared: quote the ratios.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench import chart, fairness, report, scale_up
from bench.chart import Line
from bench.contenders import Contender, Peer, Raybus
from bench.fairness import Fairness
from bench.report import OUTPUT, emit
from bench.scale_up import Figures

Rows = Sequence[tuple[str, Callable[[Figures], str]]]

_ROWS: Rows = (
    ("wall time until all are ready", lambda found: f"{found.wall:.2f} s"),
    ("a cluster from its creation to ready, p50", lambda found: f"{found.latency_p50:.2f} s"),
    ("… p99", lambda found: f"{found.latency_p99:.2f} s"),
    ("API requests per cluster, Events included", lambda found: f"{found.requests_per_cluster:.2f}"),
    ("… of which status writes", lambda found: f"{found.status_writes_per_cluster:.2f}"),
    ("CPU of all its processes", lambda found: f"{found.cpu_seconds:.2f} s"),
    ("… per cluster", lambda found: f"{found.cpu_seconds / found.clusters * 1000:.1f} ms"),
    ("peak PSS of all its processes", lambda found: f"{found.peak_pss:.0f} MiB"),
    ("growth of all its processes per pod", lambda found: f"{found.kib_per_pod:.1f} KiB"),
    (
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
    table = Table("", "floor", *(found.name for found in result.contenders), title=title, title_justify="left")
    for number, (label, value) in enumerate(_ROWS):
        own = value(result.floor) if number == 0 else ""
        table.add_row(label, own, *(value(found) for found in result.contenders))
    return table


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


def main() -> None:
    """Measure, print and write down."""
    options = asked()
    contenders: list[Contender] = [Raybus()]
    if options.peer:
        contenders.append(Peer(options.peer, options.peer_crds))
    wanted = Wanted(clusters=options.n, contenders=contenders, idle_minutes=options.idle, is_fair=options.fair)
    result = report.measured(run(wanted))
    show(result)
    report.write(result, picture(result), options.out / "clusters")


if __name__ == "__main__":
    main()
