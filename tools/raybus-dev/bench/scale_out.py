"""Are several replicas of cluster-reconciler faster than one if the API server is slow?

    make bench-scale-out [N=160] [LATENCY=400]

A fault-injection proxy between each replica and the API server delays every request by 400 ms, like
a distant or busy API server, so that on a small machine neither the processors nor the API server
are the limit. The watcher has no proxy. Everything else is as in `bench.clusters`. Goals: four
replicas make at least 3.2 times as many clusters per second ready as one replica, five replicas at
least 4 times as many, and the number of watches stays the same.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.table import Table

from bench import background, chart, contenders, programs, report
from bench.chart import ReadyLine
from bench.goals import FigureGoal, judged
from bench.report import OUTPUT, emit
from bench.rig import ALONE, BACKGROUND, Rig, fresh
from common import labels
from common.kube.resources import LEASE
from common.runtime import ownership
from support.servers.fault_proxy import Fate
from support.servers.fleet import NAMESPACE
from support.waiting import eventually_true

WATCHER: Final = "watcher"
RECONCILER: Final = "cluster-reconciler"
GOALS: Final = {4: 3.2, 5: 4.0}
"""Goals: minimum clusters per second, relative to one replica, by number of replicas."""
BUSY: Final = 90.0
"""Percent of all processors' time above which the processors count as the bottleneck."""


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements with one number of replicas. Times are in seconds."""

    replicas: int
    clusters: int
    wall: float
    ready_at: list[float]
    cpu_seconds: float
    """Processor time of the watcher, NATS and all replicas."""
    machine_percent: float
    """Percent of all processors' time that the machine was busy."""
    watches: int
    """Number of kinds of objects that raybus's processes watch, summed over their user agents."""

    @property
    def per_second(self) -> float:
        """Clusters that became ready per second."""
        return self.clusters / self.wall


class ScaleOutResult(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one run of the benchmark."""

    latency_ms: int
    ratios: dict[int, float]
    """Clusters per second relative to one replica, by number of replicas."""
    is_cpu_bound: bool
    figures: list[ReplicaFigures]

    @property
    def goals(self) -> list[FigureGoal]:
        """The goals with their results.

        If the processors were the bottleneck, the result says so: the ratio then does not measure
        the division of work.
        """
        watches = [figure.watches for figure in self.figures]
        return [
            *(
                FigureGoal(
                    figure=f"clusters per second of {replicas} replicas, by those of one",
                    value=f"{ratio:.2f}" + (", limited by processors" if self.is_cpu_bound else ""),
                    goal=f"{GOALS[replicas]:g}",
                    is_reached=ratio >= GOALS[replicas],
                )
                for replicas, ratio in self.ratios.items()
            ),
            FigureGoal(
                figure="watches that the API server saw",
                value=", ".join(map(str, watches)),
                goal="as many",
                is_reached=len(set(watches)) == 1,
            ),
        ]


async def measure(count: int, latency_ms: int, logs: Path) -> ScaleOutResult:
    """Measure one replica, then each number of `GOALS`, always on a new control plane."""
    figures: list[ReplicaFigures] = []
    for replicas in (1, *GOALS):
        emit(f"{count} clusters, {latency_ms} ms latency, {replicas} replicas")
        figures.append(await _measure(count, replicas, latency_ms / 1000, logs))
        emit(
            f"{replicas} replicas: {figures[-1].wall:.1f} s, {figures[-1].per_second:.2f} "
            "clusters per second"
        )
    is_bound = any(figure.machine_percent > BUSY for figure in figures)
    one, *many = figures
    ratios = {figure.replicas: round(figure.per_second / one.per_second, 2) for figure in many}
    return ScaleOutResult(
        latency_ms=latency_ms, ratios=ratios, is_cpu_bound=is_bound, figures=figures
    )


async def _measure(count: int, replicas: int, latency: float, logs: Path) -> ReplicaFigures:
    async with fresh() as rig, _run_raybus(rig, replicas, latency, logs) as pids:
        async with background.watching(rig, background.CLUSTERS, background.is_ready) as ready:
            await background.create_cluster(rig, ALONE, "probe", workers=1)
            await ready.count(1)
            cpu, machine = programs.cpu_seconds(pids), programs.Machine()
            began = asyncio.get_running_loop().time()
            await background.create_many(rig, count)
            await ready.count(1 + count)
            wall = asyncio.get_running_loop().time() - began
            percent = machine.percent
        at = sorted(
            moment - began for (namespace, _), moment in ready.at.items() if namespace == BACKGROUND
        )
        return ReplicaFigures(
            replicas=replicas,
            clusters=count,
            wall=wall,
            ready_at=at,
            cpu_seconds=programs.cpu_seconds(pids) - cpu,
            machine_percent=percent,
            watches=rig.audit.watches("raybus"),
        )


@asynccontextmanager
async def _run_raybus(
    rig: Rig, replicas: int, latency: float, logs: Path
) -> AsyncGenerator[Sequence[int]]:
    """Run NATS, a watcher and `replicas` of cluster-reconciler; yield their process ids.

    `latency` is the delay in seconds of each request of a reconciler to the API server.
    """
    fleet_of_raybus = contenders.fleet_on(
        rig, logs, use_fault_proxies=lambda service: service != WATCHER
    )
    async with fleet_of_raybus as (fleet, nats):
        fleet.scale(WATCHER, 1)
        fleet.scale(RECONCILER, replicas)
        fleet.judge(RECONCILER, lambda _asked: Fate(delay=latency))
        await fleet.ready()
        await eventually_true(
            lambda: _is_shared(rig, replicas), what=f"{replicas} replicas that share the work"
        )
        yield [nats, *(replica.pid for replica in fleet.all())]


class _Lease(msgspec.Struct, frozen=True):
    class Meta(msgspec.Struct, frozen=True):
        annotations: dict[str, str] = {}

    metadata: Meta


class _Leases(msgspec.Struct, frozen=True):
    items: list[_Lease]


async def _is_shared(rig: Rig, replicas: int) -> bool:
    """Return whether the replicas hold all 64 partitions, and each replica at least one."""
    listed = await rig.kube.list(
        LEASE, NAMESPACE, label_selector=f"{labels.REPLICA_OF}={RECONCILER}"
    )
    leases = msgspec.json.decode(listed, type=_Leases).items
    held = [
        len(ownership.parse_partitions(lease.metadata.annotations.get(labels.PARTITIONS, "")) or ())
        for lease in leases
    ]
    return len(held) == replicas and min(held) > 0 and sum(held) == 64


def table(result: ScaleOutResult) -> Table:
    """Build the table of figures."""
    title = (
        f"{result.figures[0].clusters} RayClusters of 4 pods, every request of a reconciler "
        f"{result.latency_ms} ms slower"
    )
    replicas = [
        f"{figure.replicas} replica{'s' if figure.replicas > 1 else ''}"
        for figure in result.figures
    ]
    shown = Table("", *replicas, title=title, title_justify="left")
    shown.add_row(
        "wall time until all are ready", *(f"{figure.wall:.1f} s" for figure in result.figures)
    )
    shown.add_row("clusters per second", *(f"{figure.per_second:.2f}" for figure in result.figures))
    ratios = (
        f"{ratio:.2f} (goal: {GOALS[replicas]:g})" for replicas, ratio in result.ratios.items()
    )
    shown.add_row("ratio", "", *ratios)
    shown.add_row(
        "CPU of watcher, NATS and replicas",
        *(f"{figure.cpu_seconds:.1f} s" for figure in result.figures),
    )
    shown.add_row(
        "processors of the machine in use",
        *(f"{figure.machine_percent:.0f} %" for figure in result.figures),
    )
    shown.add_row(
        "watches that the API server saw", *(str(figure.watches) for figure in result.figures)
    )
    return shown


def picture(result: ScaleOutResult) -> str:
    """Draw, as SVG, how many clusters were ready after how long."""
    lines = [ReadyLine(f"{figure.replicas} replicas", figure.ready_at) for figure in result.figures]
    title = f"{result.figures[0].clusters} RayClusters to ready, {result.latency_ms} ms latency"
    return chart.draw(lines, title=title)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=160, help="RayClusters to create (160)")
    parser.add_argument(
        "--latency", metavar="MS", type=int, default=400, help="delay of every request (400)"
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the figures"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=OUTPUT,
        help="folder of the figures (build/bench)",
    )
    options = parser.parse_args(arguments)
    if options.n < 1 or options.latency < 0:
        parser.error("-n must be at least 1 and --latency at least 0")
    return options


def main() -> int:
    """Measure, print and write the figures. Return 1 if a goal is missed, else 0."""
    options = parse_arguments()
    report.keep_stdout_clean()
    logs = options.out / "scale-out-logs"
    logs.mkdir(parents=True, exist_ok=True)
    result = report.measured(measure(options.n, options.latency, logs), loop=uvloop.new_event_loop)
    report.show(result, lambda: table(result), form=options.o)
    report.write(result, options.out / "scale-out", picture=picture(result))
    if result.is_cpu_bound:
        emit(
            f"processors were the limit (over {BUSY:g} % in use): the ratio proves little about "
            "sharding"
        )
    return judged("scale-out", result.goals)


if __name__ == "__main__":
    sys.exit(main())
