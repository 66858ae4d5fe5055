"""What do N idle RayServices cost, and how quickly does raybus react to a changed one?

    make bench-services [N=500] [IDLE=2]

The API server, etcd, scheduler, controller-manager and NATS are real; pods are simulated (kwok);
the services run as `raybus up` runs them, with default settings. One process simulates all Ray
heads, in a network namespace where every pod address leads to this machine. Goals at rest: no write
except to Leases, at most 3 % of a core and 5 requests a second to dashboards. Goal for a change: a
reaction within 0.5 s.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from rich.table import Table

from bench import background, heads, pod_network, programs, report, rig, scale_up
from bench.goals import FigureGoal, judged
from bench.heads import Heads
from bench.report import emit
from bench.rig import BACKGROUND, Rig
from common.api.opaque import Body
from common.kube.client import PatchRequest
from common.kube.resources import RAY_SERVICE
from common.kube.watch import NamespacedName, WatchTarget
from support.builders.ray_service import a_cluster_config, a_ray_service, a_serve_config
from support.servers import raybus_up

SERVICES: Final = WatchTarget(resource=RAY_SERVICE)
TRIED: Final = 20
"""Number of changes of each kind. Each change is made after the reaction to the previous one."""
MAX_CPU_SHARE: Final = 3.0
MAX_REQUESTS_PER_SECOND: Final = 5.0
MAX_REACTION_SECONDS: Final = 0.5


class ServiceReaction(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from a change of a RayService to raybus's reaction, for one kind of change."""

    change: str
    p50: float
    worst: float


class ServiceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of the benchmark."""

    services: int
    ready_seconds: float
    """Seconds from the first RayService until all RayServices were ready."""
    idle_minutes: float
    writes: dict[str, int]
    """Writes of raybus to the API server during the idle minutes, by verb and resource.

    Writes to Leases are left out.
    """
    reads: dict[str, int]
    percent_of_a_core: dict[str, float]
    """Percent of a core that each process of raybus used during the idle minutes."""
    asked_per_second: dict[str, float]
    """Requests per second to the simulated Ray heads, by type."""
    resident_mib: dict[str, float]
    reactions: list[ServiceReaction]

    @property
    def total_percent(self) -> float:
        """Percent of a core that all processes together used during the idle minutes."""
        return sum(self.percent_of_a_core.values())

    @property
    def goals(self) -> list[FigureGoal]:
        """The goals of this benchmark, with their results."""
        writes, asked = sum(self.writes.values()), self.asked_per_second.get("dashboard", 0.0)
        return [
            FigureGoal(
                figure="writes at rest", value=f"{writes}", goal="none", is_reached=not writes
            ),
            FigureGoal(
                figure="CPU of all processes at rest",
                value=f"{self.total_percent:.1f} % of a core",
                goal=f"{MAX_CPU_SHARE:g} % of a core",
                is_reached=self.total_percent <= MAX_CPU_SHARE,
            ),
            FigureGoal(
                figure="requests to dashboards at rest",
                value=f"{asked:.1f} a second",
                goal=f"{MAX_REQUESTS_PER_SECOND:g} a second",
                is_reached=asked <= MAX_REQUESTS_PER_SECOND,
            ),
            *(
                FigureGoal(
                    figure=f"{reaction.change}, longest",
                    value=f"{reaction.worst:.2f} s",
                    goal=f"{MAX_REACTION_SECONDS:g} s",
                    is_reached=reaction.worst <= MAX_REACTION_SECONDS,
                )
                for reaction in self.reactions
            ),
        ]


async def measure(count: int, idle_minutes: float) -> ServiceFigures:
    """Create `count` RayServices, measure them at rest, then change some of them."""
    async with rig.fresh() as bench_rig, heads.played() as played:
        with raybus_up.started(
            bench_rig.work / "up", "--kubeconfig", str(bench_rig.kubeconfig)
        ) as running:
            announced = await running.ready(within=120)
            pids = {program: announced.one(program) for program in announced.pids}
            began = time.monotonic()
            await _create_services(bench_rig, count)
            ready_seconds = time.monotonic() - began
            emit(
                f"{count} services are ready after {ready_seconds:.1f} s; waiting until all are "
                "at rest"
            )
            await scale_up.wait_until_no_writes(bench_rig.audit)
            emit(f"{idle_minutes:g} minutes at rest")
            idle = await _measure_idle(bench_rig, played, pids, idle_minutes)
            emit("changing some")
            reactions = await _measure_changes(bench_rig, played, count)
            return msgspec.structs.replace(
                idle, services=count, ready_seconds=ready_seconds, reactions=reactions
            )


async def _create_services(bench_rig: Rig, count: int) -> None:
    async with background.watching(bench_rig, SERVICES, _is_ready_service) as ready:
        await background.each(count, lambda index: _create(bench_rig, name_of(index)))
        await ready.count(count)


async def _create(bench_rig: Rig, name: str) -> None:
    await bench_rig.kube.create(RAY_SERVICE, BACKGROUND, a_service(name))


async def _measure_idle(
    bench_rig: Rig, played: Heads, pids: Mapping[str, int], minutes: float
) -> ServiceFigures:
    mark, asked, began = bench_rig.audit.here(), played.asked.copy(), time.monotonic()
    before = {name: programs.cpu_seconds([pid]) for name, pid in pids.items()}
    await asyncio.sleep(minutes * 60)
    seconds = time.monotonic() - began
    used = {name: programs.cpu_seconds([pid]) - before[name] for name, pid in pids.items()}
    reported = bench_rig.audit.since(mark)
    # A read of a dashboard goes through the API server, so the audit log has it, too.
    reads = {
        kind: number for kind, number in reported.by_kind.items() if kind not in reported.changes
    }
    return ServiceFigures(
        services=0,
        ready_seconds=0.0,
        idle_minutes=minutes,
        writes=reported.changes,
        reads=reads,
        percent_of_a_core={
            name: round(100 * used_seconds / seconds, 2) for name, used_seconds in used.items()
        },
        asked_per_second={
            what: round(number / seconds, 1) for what, number in (played.asked - asked).items()
        },
        resident_mib={name: round(programs.pss_mib([pid]), 1) for name, pid in pids.items()},
        reactions=[],
    )


async def _measure_changes(bench_rig: Rig, played: Heads, count: int) -> list[ServiceReaction]:
    """Change RayServices one after another; measure the reaction to each change before the next.

    `count` is the number of RayServices.
    """
    clusters = await _list_active_clusters(bench_rig)
    tried = min(2 * TRIED, count)
    chosen = [name_of(index * count // tried) for index in range(tried)]

    async def config(name: str) -> None:
        sent = len(played.serve.head(f"{clusters[name]}-head-svc").puts)
        await _patch(bench_rig, name, {"serveConfigV2": a_serve_config(message="changed")})
        await played.configured(clusters[name], sent + 1)

    async def spec(name: str) -> None:
        async with background.watching(
            bench_rig, background.CLUSTERS, _is_second(name, clusters[name])
        ) as second:
            await _patch(bench_rig, name, {"rayClusterConfig": a_config("rayproject/ray:2.53.0")})
            await second.count(1)

    return [
        await _measure_reaction("a Serve config reaches Ray", chosen[::2], config),
        await _measure_reaction("a cluster spec gets its new cluster", chosen[1::2], spec),
    ]


async def _measure_reaction(
    change: str, names: list[str], do: Callable[[str], Awaitable[None]]
) -> ServiceReaction:
    taken: list[float] = []
    for name in names:
        began = time.monotonic()
        async with asyncio.timeout(60):
            await do(name)
        taken.append(time.monotonic() - began)
    taken.sort()
    return ServiceReaction(
        change=change, p50=round(taken[len(taken) // 2], 3), worst=round(taken[-1], 3)
    )


async def _patch(bench_rig: Rig, name: str, spec: Body) -> None:
    await bench_rig.kube.patch(RAY_SERVICE, BACKGROUND, name, PatchRequest(body={"spec": spec}))


class _Active(msgspec.Struct, frozen=True, rename="camel"):
    ray_cluster_name: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    active_service_status: _Active = _Active()
    conditions: list[_Condition] = []


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _Service(msgspec.Struct, frozen=True):
    metadata: _Meta
    status: _Status = _Status()


class _List(msgspec.Struct, frozen=True):
    items: list[_Service]


async def _list_active_clusters(bench_rig: Rig) -> dict[str, str]:
    """Return the name of each RayService's active cluster, keyed by the RayService's name."""
    listed = msgspec.json.decode(await bench_rig.kube.list(RAY_SERVICE, BACKGROUND), type=_List)
    return {
        service.metadata.name: service.status.active_service_status.ray_cluster_name
        for service in listed.items
    }


def _is_ready_service(service: background.BenchObject) -> NamespacedName | None:
    return (
        (BACKGROUND, service.metadata.name) if service.status.service_status == "Running" else None
    )


def _is_second(service: str, first: str) -> background.ObjectMatcher:
    """Return a matcher for clusters of a RayService other than the cluster `first`."""

    def seen(cluster: background.BenchObject) -> NamespacedName | None:
        name = cluster.metadata.name
        is_second = name.startswith(f"{service}-") and name != first
        return (BACKGROUND, name) if is_second else None

    return seen


def name_of(index: int) -> str:
    """Return the name of the RayService with this index."""
    return f"s{index:04d}"


def a_service(name: str) -> Body:
    """Build a RayService whose cluster has only a head."""
    body = a_ray_service(name=name, config=a_config("rayproject/ray:2.52.0"))
    return {**body, "metadata": {"name": name}}


def a_config(image: str) -> Body:
    """Build the cluster config of a RayService whose cluster has only a head."""
    return {**a_cluster_config(image=image), "workerGroupSpecs": []}


def table(figures: ServiceFigures) -> Table:
    """Build the table of figures."""
    title = f"{figures.services} RayServices, {figures.idle_minutes:g} minutes at rest"
    shown = Table("figure", "value", title=title, title_justify="left")
    shown.add_row("from the first to the last one ready", f"{figures.ready_seconds:.1f} s")
    writes = ", ".join(f"{kind} {number}" for kind, number in figures.writes.items())
    shown.add_row("writes to the API server (goal: none)", writes or "none")
    shown.add_row(
        f"CPU of all (goal: at most {MAX_CPU_SHARE:g} % of a core)",
        f"{figures.total_percent:.1f} % of a core",
    )
    for name, percent in figures.percent_of_a_core.items():
        shown.add_row(f"  {name}", f"{percent:.1f} %, {figures.resident_mib[name]:.0f} MiB")
    for what, number in figures.asked_per_second.items():
        goal = f" (goal: at most {MAX_REQUESTS_PER_SECOND:g})" if what == "dashboard" else ""
        shown.add_row(f"requests to heads: {what}{goal}", f"{number:.1f} per second")
    for reaction in figures.reactions:
        shown.add_row(
            f"{reaction.change} (goal: {MAX_REACTION_SECONDS:g} s)",
            f"p50 {reaction.p50:.2f} s, worst {reaction.worst:.2f} s",
        )
    return shown


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=500, help="RayServices (500)")
    parser.add_argument(
        "--idle",
        metavar="MINUTES",
        type=float,
        default=2.0,
        help="duration of the idle measurement (2)",
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the figures"
    )
    options = parser.parse_args(arguments)
    if options.n < 1 or options.idle <= 0:
        parser.error("-n and --idle must be greater than 0")
    return options


def main() -> int:
    """Measure and print the figures. Return 1 if a goal is missed, else 0."""
    options = parse_arguments(sys.argv[1:])
    pod_network.enter("bench.services")
    figures = report.measured(measure(options.n, options.idle))
    report.show(figures, lambda: table(figures), form=options.o)
    return judged("services", figures.goals)


if __name__ == "__main__":
    sys.exit(main())
