"""How quickly do N RayJobs complete, at what cost, and what do running RayJobs cost at rest?

    make bench-jobs [N=1000] [ROUNDS=1] [REST=500] [IDLE=1] [PEER='CMD'] [PEER_CRDS=DIR]

Each RayJob has its own RayCluster of a head and a worker, which is deleted when the job has
completed. The mode is HTTPMode: the operator submits the job and polls Ray until the job has ended.
The API server, etcd, scheduler, controller-manager and NATS are real; the pods are simulated
(kwok), and one process simulates all Ray heads. A driver takes one second; the drivers of the
running jobs at rest never end. Each operator gets a new control plane, one after the other.
Machines differ, so quote ratios.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.table import Table

from bench import background, contenders, heads, pod_network, programs, report, scale_up
from bench.background import BenchObject
from bench.contenders import Contender, Operator, Raybus
from bench.goals import FigureGoal, judged
from bench.heads import Heads
from bench.report import OUTPUT, emit
from bench.rig import Rig, fresh, namespace_of
from bench.scale_up import percentile
from common.api.opaque import Body
from common.kube.resources import RAY_JOB
from common.kube.watch import NamespacedName, WatchTarget

JOBS: Final = WatchTarget(resource=RAY_JOB)
QUICK: Final = "python quick.py"
"""Entrypoint of a driver that succeeds after `DRIVER_SECONDS`."""
ENDLESS: Final = "python endless.py"
DRIVER_SECONDS: Final = 1.0
MAX_SHARE_OF_PEER: Final = 0.9
MAX_CPU_SHARE: Final = 3.0
"""Goal: maximum percent of a core that the running jobs cost."""


class RunningJobsCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of running jobs whose drivers do not end, while nothing changes."""

    jobs: int
    minutes: float
    writes: dict[str, int]
    """Writes to the API server by verb and resource, without those to Leases."""
    asked_per_second: dict[str, float]
    """Requests per second to the simulated Ray heads, by type."""
    percent_of_a_core: dict[str, float]
    """Percent of a core that each program of the operator used."""
    percent_without_jobs: float
    """Percent of a core that all programs of the operator used before the first RayJob."""

    @property
    def percent(self) -> float:
        """Percent of a core that all programs of the operator used."""
        return sum(self.percent_of_a_core.values())

    @property
    def percent_of_jobs(self) -> float:
        """Percent of a core that the running jobs add to the cost of the idle operator."""
        return max(0.0, self.percent - self.percent_without_jobs)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one operator.

    Times are in seconds and memory in MiB, unless the name has a unit.
    """

    name: str
    jobs: int
    wall: float
    """Seconds from the first request until all RayJobs were complete."""
    latency_p50: float
    """Median seconds from the creation of a RayJob until it was complete."""
    latency_p99: float
    requests: dict[str, int]
    cpu_by_program: dict[str, float]
    control_plane_cpu: dict[str, float]
    peak_pss: float
    computation_ms: float
    """Median milliseconds of processor time of a fixed computation during the run.

    It shows how fast the machine was.
    """
    rest: RunningJobsCost | None = None

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of processor time per job, of all the operator's processes."""
        return 1000 * sum(self.cpu_by_program.values()) / self.jobs

    @property
    def server_ms(self) -> float:
        """Milliseconds of processor time per job, of the API server."""
        return 1000 * self.control_plane_cpu.get("kube-apiserver", 0.0) / self.jobs

    @property
    def requests_per_job(self) -> float:
        """Requests to the API server per job, including those that it forwards to dashboards."""
        return sum(self.requests.values()) / self.jobs

    @property
    def writes_per_job(self) -> float:
        """Write requests to the API server per job, including Events."""
        written = (
            count
            for kind, count in self.requests.items()
            if not kind.startswith(("get ", "list ")) and "/proxy" not in kind
        )
        return sum(written) / self.jobs


class Row(msgspec.Struct, frozen=True):
    """A row of the table. If `is_goal`, the ratio of raybus's figure to the peer's is limited."""

    label: str
    value: Callable[[Figures], float]
    form: str
    is_goal: bool = False


ROWS: Final = (
    Row("wall time until all are complete", lambda figures: figures.wall, "{:.1f} s", is_goal=True),
    Row(
        "a job from its creation to complete, p50", lambda figures: figures.latency_p50, "{:.1f} s"
    ),
    Row("… p99", lambda figures: figures.latency_p99, "{:.1f} s"),
    Row("CPU of all processes per job", lambda figures: figures.cpu_ms, "{:.1f} ms", is_goal=True),
    Row("CPU of the API server per job", lambda figures: figures.server_ms, "{:.1f} ms"),
    Row("requests per job", lambda figures: figures.requests_per_job, "{:.1f}", is_goal=True),
    Row("… that write, Events included", lambda figures: figures.writes_per_job, "{:.1f}"),
    Row("peak PSS of all processes", lambda figures: figures.peak_pss, "{:.0f} MiB"),
    Row("a fixed computation meanwhile", lambda figures: figures.computation_ms, "{:.2f} ms"),
)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one run.

    Each round has the figures of raybus and then, if there is a peer, those of the peer.
    """

    rounds: list[list[Figures]]

    @property
    def goals(self) -> list[FigureGoal]:
        """The goals of this benchmark, with their results."""
        rests = [figures[0].rest for figures in self.rounds if figures[0].rest is not None]
        return [
            *(self._compare_with_peer(row) for row in ROWS if row.is_goal),
            *(_build_running_jobs_goals(rests) if rests else []),
        ]

    def _compare_with_peer(self, row: Row) -> FigureGoal:
        shares = [row.value(own) / row.value(peer) for own, *peers in self.rounds for peer in peers]
        texts = [text_of(row, figures) for figures in zip(*self.rounds, strict=True)]
        return FigureGoal(
            figure=row.label,
            value=" beside ".join(texts),
            goal=f"{MAX_SHARE_OF_PEER:g} × peer",
            is_reached=median(shares) <= MAX_SHARE_OF_PEER if shares else None,
        )


def _build_running_jobs_goals(rests: Sequence[RunningJobsCost]) -> list[FigureGoal]:
    """Return the goals for running jobs: the median CPU share, and the writes of all rounds."""
    writes = sum(count for rest in rests for count in rest.writes.values())
    percent_of_jobs = median(rest.percent_of_jobs for rest in rests)
    percent = median(rest.percent for rest in rests)
    return [
        FigureGoal(
            figure=f"CPU for {rests[-1].jobs} running jobs at rest",
            value=(
                f"{percent_of_jobs:.1f} % of a core ({percent:.1f} % including the idle services)"
            ),
            goal=f"{MAX_CPU_SHARE:g} % of a core",
            is_reached=percent_of_jobs <= MAX_CPU_SHARE,
        ),
        FigureGoal(figure="writes at rest", value=f"{writes}", goal="none", is_reached=not writes),
    ]


class JobsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line.

    `rest` is the number of endless jobs whose cost is measured while nothing changes.
    """

    jobs: int
    rest: int
    idle_minutes: float
    rounds: int
    contenders: list[Contender]


async def run(options: JobsOptions) -> Result:
    """Run all measurements in order; report the progress on standard error."""
    rounds: list[list[Figures]] = []
    for number in range(options.rounds):
        figures: list[Figures] = []
        for contender in options.contenders:
            emit(f"round {number + 1} of {options.rounds}, {options.jobs} jobs: {contender.name}")
            figures.append(await measure(contender, options))
        rounds.append(figures)
    return Result(rounds=rounds)


async def measure(contender: Contender, options: JobsOptions) -> Figures:
    """Measure one operator on a new control plane."""
    largest = max(options.jobs, options.rest)
    async with (
        heads.played() as played,
        fresh(contender.crds, clusters=largest) as rig,
        contender.on(rig) as operator,
    ):
        await scale_up.at_rest(rig.audit)
        without_jobs = (
            await _measure_core_percent(operator, options.idle_minutes) if options.rest else {}
        )
        played.driver_seconds[QUICK] = DRIVER_SECONDS
        figures = await _measure_completion(rig, operator, options.jobs)
        emit(f"{operator.name}: {options.jobs} jobs are complete after {figures.wall:.1f} s")
        if not options.rest:
            return figures
        rest = await _measure_running_jobs(
            rig, played, operator, options, sum(without_jobs.values())
        )
        return msgspec.structs.replace(figures, rest=rest)


async def _measure_completion(rig: Rig, operator: Operator, count: int) -> Figures:
    """Create `count` RayJobs; measure until all are complete and the operator is idle."""
    asked: dict[NamespacedName, float] = {}

    async def one(index: int) -> None:
        key = namespace_of(index), f"j{index:05d}"
        asked[key] = asyncio.get_running_loop().time()
        await rig.kube.create(RAY_JOB, key[0], a_job(key[1], QUICK))

    async with background.watching(rig, JOBS, recognize_status("Complete")) as complete:
        mark = rig.audit.here()
        own, servers = programs.cpu_by_program(operator.pids()), scale_up.control_plane_cpu(rig)
        async with programs.watched(operator.pids) as seen:
            began = asyncio.get_running_loop().time()
            await background.each(count, one)
            await complete.count(count)
            wall = asyncio.get_running_loop().time() - began
            requests = await scale_up.at_rest(rig.audit, since=mark)
        own = programs.since(own, programs.cpu_by_program(operator.pids()))
        servers = programs.since(servers, scale_up.control_plane_cpu(rig))
    latencies = sorted(complete.at[key] - moment for key, moment in asked.items())
    return Figures(
        name=operator.name,
        jobs=count,
        wall=wall,
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        requests=requests.by_kind,
        cpu_by_program=own,
        control_plane_cpu=servers,
        peak_pss=seen.peak_pss_mib,
        computation_ms=median(seen.computations),
    )


async def _measure_running_jobs(
    rig: Rig, played: Heads, operator: Operator, options: JobsOptions, percent_without_jobs: float
) -> RunningJobsCost:
    """Create RayJobs whose drivers do not end; measure their cost once nothing is written."""

    async def one(index: int) -> None:
        await rig.kube.create(RAY_JOB, namespace_of(index), a_job(f"r{index:05d}", ENDLESS))

    async with background.watching(rig, JOBS, recognize_status("Running")) as running:
        await background.each(options.rest, one)
        await running.count(options.rest)
    emit(f"{operator.name}: {options.rest} jobs are running; waiting until they are at rest")
    await scale_up.wait_until_no_writes(rig.audit)
    mark, asked = rig.audit.here(), played.asked.copy()
    began = asyncio.get_running_loop().time()
    percent = await _measure_core_percent(operator, options.idle_minutes)
    seconds = asyncio.get_running_loop().time() - began
    return RunningJobsCost(
        jobs=options.rest,
        minutes=options.idle_minutes,
        writes=rig.audit.since(mark).changes,
        asked_per_second={
            what: round(count / seconds, 1) for what, count in (played.asked - asked).items()
        },
        percent_of_a_core=percent,
        percent_without_jobs=percent_without_jobs,
    )


async def _measure_core_percent(operator: Operator, minutes: float) -> dict[str, float]:
    """Return the percent of a core that each program uses, measured over `minutes`."""
    before, seconds = programs.cpu_by_program(operator.pids()), minutes * 60
    await asyncio.sleep(seconds)
    used = programs.since(before, programs.cpu_by_program(operator.pids()))
    return {name: round(100 * used_seconds / seconds, 2) for name, used_seconds in used.items()}


def recognize_status(state: str) -> background.ObjectMatcher:
    """Return a function that recognizes RayJobs with this deployment status."""

    def seen(job: BenchObject) -> NamespacedName | None:
        is_reached = job.status.job_deployment_status == state
        return (job.metadata.namespace, job.metadata.name) if is_reached else None

    return seen


def a_job(name: str, entrypoint: str) -> Body:
    """Build a RayJob whose cluster has a head and a worker, and is deleted after the job."""
    spec = {
        "entrypoint": entrypoint,
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": background.a_cluster(name, 1)["spec"],
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def text_of(row: Row, figures: Sequence[Figures]) -> str:
    """Return the median of a row's figure over the rounds, as text."""
    return row.form.format(median(row.value(figure) for figure in figures))


def table(result: Result) -> Table:
    """Build the table of figures."""
    last = result.rounds[-1]
    title = f"{last[0].jobs} RayJobs; medians of {len(result.rounds)} rounds"
    shown = Table("", *(contender.name for contender in last), title=title, title_justify="left")
    columns = list(zip(*result.rounds, strict=True))
    for row in ROWS:
        shown.add_row(row.label, *(text_of(row, figures) for figures in columns))
    for contender in last:
        shown.add_row(
            f"requests of {contender.name}", _format_counts(contender.requests), end_section=True
        )
        rest = contender.rest
        if rest is None:
            continue
        shown.add_row(
            f"{contender.name}, {rest.jobs} running jobs for {rest.minutes:g} minutes",
            f"{rest.percent_of_jobs:.1f} % of a core more than the {rest.percent_without_jobs:.1f} "
            f"% without jobs ({_format_counts(rest.percent_of_a_core)}); writes: "
            f"{_format_counts(rest.writes) or 'none'}; to dashboards per second: "
            f"{_format_counts(rest.asked_per_second)}",
        )
    return shown


def _format_counts(by_kind: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {count:g}" for kind, count in by_kind.items())


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    contenders.add_peer_options(parser)
    parser.add_argument("--rest", type=int, default=500, help="running RayJobs at rest (500)")
    parser.add_argument(
        "--idle", metavar="MINUTES", type=float, default=1.0, help="minutes at rest (1)"
    )
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds (1)")
    parser.add_argument("-o", choices=["text", "json"], default="text", help="form of the figures")
    parser.add_argument("--out", metavar="DIR", type=Path, default=OUTPUT, help="folder of figures")
    options = background.parse_arguments(parser, arguments, count=1000, what="RayJobs to create")
    if options.rounds < 1 or options.idle <= 0 or options.rest < 0:
        parser.error("--rounds and --idle must be greater than 0, and --rest not negative")
    options.peer = contenders.peer_of(options, parser)
    return options


def main() -> int:
    """Measure, print and write the figures. Return 1 if a goal is missed, else 0."""
    options = parse_arguments()
    pod_network.enter("bench.jobs")
    peers: list[Contender] = [] if options.peer is None else [options.peer]
    job_options = JobsOptions(
        jobs=options.n,
        rest=options.rest,
        idle_minutes=options.idle,
        rounds=options.rounds,
        contenders=[Raybus(), *peers],
    )
    result = report.measured(run(job_options))
    report.show(result, lambda: table(result), form=options.o, width=150)
    report.write(result, options.out / "jobs")
    return judged("jobs", result.goals)


if __name__ == "__main__":
    sys.exit(main())
