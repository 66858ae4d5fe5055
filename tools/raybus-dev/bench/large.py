"""Does raybus remain fast with thousands of RayClusters? Measures their scale-up and failovers.

    make bench-large [N=5000]

Two replicas of each service run on one control plane; pods are simulated (kwok). With N clusters at
rest, small clusters and RayServices are created twice a second. A working process is ended by
SIGKILL or SIGTERM, and the figure is the longest time for which a new object waits for a reaction.
Traffic-manager and job-reconciler act on the answers of real clusters, so they are not ended here
(`make chaos` kills them).
"""

import argparse
import asyncio
import itertools
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.table import Table

from bench import background, contenders, pod_network, report, scale_up
from bench.background import BenchObject, FirstSeen, NamespacedName
from bench.goals import FigureGoal, judged
from bench.report import OUTPUT, emit
from bench.rig import ALONE, BACKGROUND, Rig, fresh, namespace_of
from bench.scale_up import percentile
from bench.services import a_service
from common import errors
from common.kube.resources import LEASE, RAY_SERVICE
from support.servers.fleet import NAMESPACE, Fleet, Replica
from support.waiting import eventually

WATCHER: Final = "watcher"
SERVICES: Final = (
    WATCHER,
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)
LEADER: Final = "ray-operator-leader"
MAX_RATIO_TO_FLOOR: Final = 2.0
CREATION_INTERVAL: Final = 0.5
"""Seconds between two creations of objects."""
CREATION_SECONDS: Final = 20.0
"""Seconds for which objects are created before and after the end of a process."""
RESTART_SECONDS: Final = 45.0
CREATIONS_BEFORE: Final = 4
"""Number of creations before the process is ended. They show the usual wait."""
REBALANCE_SECONDS: Final = 10.0
"""Seconds to wait, after two replicas are ready, for them to divide the partitions."""
SECONDS_BEFORE_END: Final = 0.5
"""Seconds from the first measured creation to the end of the process."""


class Failover(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of ending one process. Times are in seconds."""

    what: str
    calm: float
    """Median wait of objects that were created before the process ended."""
    longest: float
    created: int
    goal: float


class LargeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one run of the benchmark. Times are in seconds."""

    clusters: int
    floor: float
    wall: float
    failovers: list[Failover]
    unready: list[str]
    """Names of clusters at rest that became unready during a failover."""

    @property
    def goals(self) -> list[FigureGoal]:
        """The goals of this benchmark, with their results."""
        return [
            FigureGoal(
                figure=f"{self.clusters} clusters to ready, by the floor",
                value=f"{self.wall:.0f} s, {self.wall / self.floor:.2f} × the floor",
                goal=f"{MAX_RATIO_TO_FLOOR:g} × the floor",
                is_reached=self.wall <= MAX_RATIO_TO_FLOOR * self.floor,
            ),
            *(
                FigureGoal(
                    figure=f"{failover.what}: longest wait",
                    value=f"{failover.longest:.2f} s",
                    goal=f"{failover.goal:g} s",
                    is_reached=failover.longest <= failover.goal,
                )
                for failover in self.failovers
            ),
            FigureGoal(
                figure="clusters that a failover made unready",
                value=f"{len(self.unready)}",
                goal="none",
                is_reached=not self.unready,
            ),
        ]


async def measure(count: int, logs: Path) -> LargeFigures:
    """Create `count` clusters, then end one process after another, and measure each failover.

    `logs` is the folder of the services' logs.
    """
    emit(f"{count} clusters: the floor")
    floor = (await scale_up.floor(count)).wall
    emit(f"the floor took {floor:.0f} s; {count} clusters with raybus")
    async with fresh(clusters=count) as rig, contenders.fleet_on(rig, logs) as (fleet, _):
        for service in SERVICES:
            fleet.scale(service, 2)
        await fleet.ready()
        async with background.watching(rig, background.CLUSTERS, background.is_ready) as ready:
            await background.create_cluster(rig, ALONE, "probe", workers=1)
            await ready.count(1)
            began = asyncio.get_running_loop().time()
            await background.create_many(rig, count, namespace=namespace_of)
            await ready.count(1 + count)
            wall = asyncio.get_running_loop().time() - began
        emit(f"all were ready after {wall:.0f} s")
        async with background.watching(rig, background.CLUSTERS, _is_unready) as unready:
            failovers = await _measure_failovers(rig, fleet)
            return LargeFigures(
                clusters=count,
                floor=floor,
                wall=wall,
                failovers=failovers,
                unready=sorted(name for _, name in unready.at),
            )


def _is_unready(cluster: BenchObject) -> NamespacedName | None:
    namespace = cluster.metadata.namespace
    is_ours = namespace.startswith(BACKGROUND)
    return (
        (namespace, cluster.metadata.name)
        if is_ours and background.is_ready(cluster) is None
        else None
    )


class _Probes:
    """Creates RayClusters and RayServices, and measures how long each waits for a first reaction.

    The reaction is a head pod for a RayCluster, and a RayCluster for a RayService.
    """

    def __init__(self, rig: Rig, heads: FirstSeen, clusters: FirstSeen) -> None:
        self._rig = rig
        self._heads = heads
        self._clusters = clusters
        self._numbers = itertools.count()
        self.created_at: dict[str, float] = {}

    async def create(self, *, seconds: float) -> None:
        """Create a RayCluster and a RayService every `CREATION_INTERVAL`, for `seconds` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            while loop.time() < deadline:
                group.create_task(self._create(f"p{next(self._numbers):05d}"))
                await asyncio.sleep(CREATION_INTERVAL)

    async def measure_waits(self, *, since: float) -> list[float]:
        """Wait until all objects created since a time have a reaction.

        Return their sorted waits in seconds.
        """
        names = [name for name, at in self.created_at.items() if at >= since]
        await eventually(
            lambda: all(map(self._get_reaction_time, names)), within=120, what="what was created"
        )
        return sorted(self._get_reaction_time(name) - self.created_at[name] for name in names)

    async def clear(self) -> None:
        """Delete the RayServices. They have no dashboards, so raybus would poll in vain forever."""
        async with asyncio.TaskGroup() as group:
            for name in self.created_at:
                if name.startswith("s"):
                    group.create_task(self._delete(name))
        self.created_at.clear()

    async def _delete(self, name: str) -> None:
        with suppress(errors.NotFound):
            await self._rig.kube.delete(RAY_SERVICE, ALONE, name)

    def _get_reaction_time(self, name: str) -> float:
        if name.startswith("s"):
            return next(
                (
                    at
                    for (_, cluster), at in self._clusters.at.items()
                    if cluster.startswith(f"{name}-")
                ),
                0.0,
            )
        return self._heads.at.get((ALONE, name), 0.0)

    async def _create(self, name: str) -> None:
        cluster, service = name, f"s{name}"
        self.created_at[cluster] = self.created_at[service] = asyncio.get_running_loop().time()
        await background.create_cluster(self._rig, ALONE, cluster, workers=1)
        await self._rig.kube.create(RAY_SERVICE, ALONE, a_service(service))


async def _measure_failovers(rig: Rig, fleet: Fleet) -> list[Failover]:
    async with (
        background.watching(rig, background.HEADS, background.is_head) as heads,
        background.watching(rig, background.CLUSTERS, _is_of_a_service) as clusters,
    ):
        probes = _Probes(rig, heads, clusters)
        failovers: list[Failover] = []
        for number, goal in ((signal.SIGKILL, 10.0), (signal.SIGTERM, 1.0)):
            for service in SERVICES[:3]:
                await _restore_two_replicas(fleet, service)
                victim = await _pick_victim(rig, fleet, service)
                end = partial(fleet.lose if number is signal.SIGKILL else fleet.end, victim)
                failovers.append(
                    await _measure_failover(probes, f"{service}, {number.name}", end, goal=goal)
                )
        fleet.scale(WATCHER, 1)
        await asyncio.sleep(REBALANCE_SECONDS)
        kill = partial(fleet.of(WATCHER)[0].send_signal, signal.SIGKILL)
        failovers.append(
            await _measure_failover(
                probes,
                "the only watcher, SIGKILL and start",
                kill,
                goal=30.0,
                seconds=RESTART_SECONDS,
            )
        )
        return failovers


async def _measure_failover(
    probes: _Probes,
    what: str,
    end: Callable[[], None],
    *,
    goal: float,
    seconds: float = CREATION_SECONDS,
) -> Failover:
    """Create objects, end a process meanwhile by calling `end`, and measure the objects' waits.

    For the table, `what` names the process, and `goal` is the maximum wait in seconds.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    await probes.create(seconds=CREATIONS_BEFORE * CREATION_INTERVAL)
    calm = percentile(await probes.measure_waits(since=began), 50)
    async with asyncio.TaskGroup() as group:
        since = loop.time()
        group.create_task(probes.create(seconds=seconds))
        await asyncio.sleep(SECONDS_BEFORE_END)
        end()
    waits = await probes.measure_waits(since=since)
    await probes.clear()
    failover = Failover(what=what, calm=calm, longest=waits[-1], created=len(waits), goal=goal)
    emit(f"{what}: longest wait {failover.longest:.2f} s, in calm {calm:.2f} s")
    return failover


async def _restore_two_replicas(fleet: Fleet, service: str) -> None:
    """Bring a service back to two replicas, and wait until they have divided the partitions.

    Otherwise one failover would be measured during another.
    """
    fleet.scale(service, 2)
    await fleet.ready()
    await asyncio.sleep(REBALANCE_SECONDS)
    await fleet.ready()


async def _pick_victim(rig: Rig, fleet: Fleet, service: str) -> Replica:
    """Return the replica to end: of watchers the Lease holder, of other services the first one."""
    if service != WATCHER:
        return fleet.of(service)[0]
    lease = msgspec.json.decode(await rig.kube.get(LEASE, NAMESPACE, LEADER))
    return next(
        process for process in fleet.of(service) if process.name == lease["spec"]["holderIdentity"]
    )


def _is_of_a_service(cluster: BenchObject) -> NamespacedName | None:
    name = cluster.metadata.name
    return (ALONE, name) if cluster.metadata.namespace == ALONE and name.startswith("s") else None


def table(figures: LargeFigures) -> Table:
    """Build the table of failovers."""
    title = (
        f"{figures.clusters} RayClusters of 4 pods: the floor {figures.floor:.0f} s, raybus "
        f"{figures.wall:.0f} s to ready"
    )
    shown = Table(
        "ended",
        "wait in calm",
        "longest wait",
        "goal",
        "created",
        title=title,
        title_justify="left",
    )
    for failover in figures.failovers:
        shown.add_row(
            failover.what,
            f"{failover.calm:.2f} s",
            f"{failover.longest:.2f} s",
            f"{failover.goal:g} s",
            f"{failover.created}",
        )
    return shown


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the figures"
    )
    return background.parse_arguments(parser, arguments, count=5000, what="RayClusters at rest")


def main() -> int:
    """Measure, print and write the figures. Return 1 if a goal is missed, else 0."""
    options = parse_arguments()
    pod_network.enter("bench.large")
    report.keep_stdout_clean()
    logs = OUTPUT / "large-logs"
    logs.mkdir(parents=True, exist_ok=True)
    figures = report.measured(measure(options.n, logs), loop=uvloop.new_event_loop)
    report.show(figures, lambda: table(figures), form=options.o)
    report.write(figures, OUTPUT / "large")
    return judged("large", figures.goals)


if __name__ == "__main__":
    sys.exit(main())
