"""How long after a change of a pod does the reconcile of its cluster begin?

    make bench-latency [N=300] [JSON=1]

The API server, etcd, scheduler, controller-manager and NATS are real; pods are simulated (kwok);
the services run as `raybus up` runs them, with tracing. The benchmark patches pods of idle
clusters, first while nothing else happens, then while N other clusters scale up; half of the
patched pods are in the namespace of those clusters. The trace of a change is found by its id, which
derives from the pod's uid and new version. The latency begins when the PATCH is sent, so it
includes the time of the API server, and ends with the span `queue` of cluster-reconciler, where the
reconcile begins.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from itertools import count as counting
from itertools import cycle, pairwise
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from bench import background, chart, report
from bench.chart import ReadyLine
from bench.goals import FigureGoal, judged
from bench.report import OUTPUT, emit
from bench.rig import ALONE, BACKGROUND, Rig, fresh
from bench.scale_up import percentile
from common.api.meta import ObjectMeta
from common.bus import messages
from common.kube.client import PatchRequest
from common.kube.resources import POD
from common.observability import logging
from common.observability.open_telemetry import SpanLine as Span
from support.servers import raybus_up

RECONCILER: Final = "raybus-cluster-reconciler"
AT_REST: Final = 120
"""Number of idle clusters whose pods are patched, half of them in each of two namespaces.

With one change every `EVERY_SECONDS`, each cluster rests six seconds between changes.
"""
EVERY_SECONDS: Final = 0.05
CHANGES: Final = 600
SETTLING_SECONDS: Final = 10.0
READY_SECONDS: Final = 600.0
"""Seconds to wait for raybus to start. Long, because the machine may be shared."""
FLUSH_SECONDS: Final = 2.0
"""Seconds to wait for spans to reach the file; usually 0.2 s, longer on a slow machine."""
GOALS: Final = {"idle": 50.0, "busy": 500.0}
"""Goals: maximum 99th percentile in milliseconds, by phase."""
MS: Final = 1_000_000
STAGES: Final = ("stored and delivered", "watch", "publish and deliver", "receive", "queue")


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A patch of a pod that the benchmark sent."""

    trace: str
    namespace: str
    at: int
    """Time of the request, in nanoseconds since 1970."""


class ChangeStages(msgspec.Struct, frozen=True, kw_only=True):
    """The latency of one change, divided into stages, in milliseconds."""

    at: float
    """Time of the change: milliseconds since the first change of the phase."""
    total: float
    stages: dict[str, float]


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """A group of changes with the latency of each."""

    name: str
    goal: float | None
    """Maximum 99th percentile in milliseconds; None if this group has no goal."""
    ways: list[ChangeStages]
    lost: int
    """Number of changes that started no reconcile of their own.

    For these changes, raybus had already read a newer state of the pod.
    """

    def at(self, percent: int, stage: str | None = None) -> float:
        """Return a percentile of the total latency, or of one stage, in milliseconds."""
        return percentile(
            sorted(way.total if stage is None else way.stages[stage] for way in self.ways),
            percent,
        )

    @property
    def is_reached(self) -> bool:
        """Whether the 99th percentile is below the goal. True without a goal."""
        return self.goal is None or (bool(self.ways) and self.at(99) < self.goal)


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one run."""

    clusters: int
    scale_up_seconds: float
    populations: list[Population]


class _Answer(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _Listed(msgspec.Struct, frozen=True):
    items: list[_Answer]


class LatencyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line.

    `at_rest` is the number of idle clusters, `changes` the number of patches.
    """

    clusters: int
    at_rest: int
    changes: int


async def measure(wanted: LatencyOptions) -> LatencyFigures:
    """Measure the idle phase and the phase of a scale-up, on a new control plane."""
    async with fresh() as rig:
        traces = rig.work / "traces"
        environment = {"RAYBUS_TRACES": str(traces)}
        up = raybus_up.started(
            rig.work / "up", "--kubeconfig", str(rig.kubeconfig), environment=environment
        )
        with up as running:
            await running.ready(within=READY_SECONDS)
            pods = await _create_idle_clusters(rig, wanted.at_rest)
            emit(f"{wanted.changes} changes while nothing else happens")
            idle = [await _patch(rig, pod) async for pod in _pace(pods, wanted.changes)]
            emit(f"the same while {wanted.clusters} clusters scale up")
            busy, began, seconds = await _patch_while_scaling_up(rig, pods, wanted.clusters)
            await asyncio.sleep(FLUSH_SECONDS)
        spans = Spans(traces)
        goal = GOALS["busy"]
        return LatencyFigures(
            clusters=wanted.clusters,
            scale_up_seconds=seconds,
            populations=[
                spans.ways("idle", idle, goal=GOALS["idle"]),
                spans.ways(
                    "busy, another namespace",
                    [change for change in busy if change.namespace == ALONE],
                    goal=goal,
                ),
                spans.ways(
                    "busy, the background namespace",
                    [change for change in busy if change.namespace == BACKGROUND],
                    goal=goal,
                ),
                spans.background(
                    "busy, pods of the background load itself", since=began, goal=None
                ),
            ],
        )


# --- the changes ----------------------------------------------------------------------------------


async def _create_idle_clusters(rig: Rig, wanted: int) -> list[tuple[str, str]]:
    """Create clusters, wait until they are idle, and return the keys of their head pods."""
    namespaces = cycle((ALONE, BACKGROUND))
    async with background.watching(rig, background.CLUSTERS, background.is_ready) as ready:
        for number, namespace in zip(range(wanted), namespaces, strict=False):
            await background.create_cluster(rig, namespace, f"rest{number}", workers=1)
        await ready.count(wanted)
    await asyncio.sleep(SETTLING_SECONDS)
    heads_of_namespaces: list[list[tuple[str, str]]] = []
    for namespace in (ALONE, BACKGROUND):
        heads = await rig.kube.list(POD, namespace, label_selector="ray.io/node-type=head")
        listed = msgspec.json.decode(heads, type=_Listed)
        heads_of_namespaces.append([(namespace, item.metadata.name) for item in listed.items])
    return [pod for pair in zip(*heads_of_namespaces, strict=False) for pod in pair]


async def _pace(pods: list[tuple[str, str]], most: int | None) -> AsyncGenerator[tuple[str, str]]:
    """Yield the pods in turn, one every `EVERY_SECONDS`: `most` in total (None: no limit)."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, pod in zip(counting() if most is None else range(most), cycle(pods), strict=False):
        await asyncio.sleep(max(0.0, began + number * EVERY_SECONDS - loop.time()))
        yield pod


async def _patch(rig: Rig, pod: tuple[str, str]) -> Sent:
    namespace, name = pod
    at = time.time_ns()
    patch = PatchRequest(body={"metadata": {"annotations": {"bench/at": str(at)}}})
    meta = msgspec.json.decode(
        await rig.kube.patch(POD, namespace, name, patch), type=_Answer
    ).metadata
    return Sent(
        trace=messages.derive_trace(meta.uid, meta.resource_version).split("-")[1],
        namespace=namespace,
        at=at,
    )


async def _patch_while_scaling_up(
    rig: Rig, pods: list[tuple[str, str]], clusters: int
) -> tuple[list[Sent], int, float]:
    """Patch pods while many clusters scale up.

    Return the patches, the start of the scale-up in nanoseconds since 1970, and its duration in
    seconds.
    """
    sent: list[Sent] = []

    async def change() -> None:
        async for pod in _pace(pods, None):
            sent.append(await _patch(rig, pod))  # noqa: PERF401  (it is cancelled in the middle)

    async with (
        background.watching(rig, background.CLUSTERS, background.is_ready) as ready,
        asyncio.TaskGroup() as group,
    ):
        known = len(ready.at)
        began, clock = time.time_ns(), time.monotonic()
        changing = group.create_task(change())
        await background.create_many(rig, clusters)
        await ready.count(known + clusters)
        changing.cancel()
        return sent, began, time.monotonic() - clock


# --- the traces -----------------------------------------------------------------------------------


class Spans:
    """The spans that the services wrote to a file, by trace id and name."""

    def __init__(self, file: Path) -> None:
        self._traces: dict[str, dict[str, Span]] = {}
        decoder = msgspec.json.Decoder(Span)
        with file.open("rb") as lines:
            for line in lines:
                span = decoder.decode(line)
                if span.service in {RECONCILER, "raybus-watcher"}:
                    self._traces.setdefault(span.trace, {}).setdefault(span.name, span)

    def ways(self, name: str, sent: list[Sent], *, goal: float | None) -> Population:
        """Return a group with the latencies of the changes `sent` by the benchmark."""
        first = min((change.at for change in sent), default=0)
        all_ways = [
            _split_into_stages(self._traces.get(change.trace, {}), change.at, first)
            for change in sent
        ]
        ways = [way for way in all_ways if way is not None]
        return Population(name=name, goal=goal, ways=ways, lost=len(all_ways) - len(ways))

    def background(self, name: str, *, since: int, goal: float | None) -> Population:
        """Return the latencies of pod changes in the clusters that scale up, from `since` on.

        The benchmark did not send these changes, so their latency begins when they reach the
        watcher. `since` is in nanoseconds since 1970.
        """
        roots = [spans["watch"] for spans in self._traces.values() if "watch" in spans]
        begun = [
            root
            for root in roots
            if root.begin >= since and root.attributes["object"].startswith(f"Pod {BACKGROUND}/c")
        ]
        return self.ways(
            name,
            [Sent(trace=root.trace, namespace=BACKGROUND, at=root.begin) for root in begun],
            goal=goal,
        )


def _split_into_stages(spans: dict[str, Span], at: int, first: int) -> ChangeStages | None:
    """Split the latency of a change into stages; None if a span of its trace is missing.

    `at` is the time of the change and `first` the time of the phase's first change, both in
    nanoseconds since 1970.
    """
    if not spans.keys() >= {"watch", "receive", "queue"}:
        return None
    moments = (
        at,
        spans["watch"].begin,
        spans["watch"].end,
        spans["receive"].begin,
        spans["queue"].begin,
        spans["queue"].end,
    )
    lengths = [(later - earlier) / MS for earlier, later in pairwise(moments)]
    total = (moments[-1] - at) / MS
    return ChangeStages(
        at=(at - first) / MS, total=total, stages=dict(zip(STAGES, lengths, strict=True))
    )


# --- the figures ----------------------------------------------------------------------------------


def table(figures: LatencyFigures) -> Table:
    """Build the table of latencies, with one row for each group of changes."""
    title = (
        f"pod change → reconciler begins, ms; {figures.clusters} clusters scaled up in "
        f"{figures.scale_up_seconds:.1f} s"
    )
    shown = Table(
        "", "changes", "p50", "p99", "max", "goal p99", *STAGES, title=title, title_justify="left"
    )
    shown.caption = (
        "each stage: p50 / p99; from the sent PATCH, or for the background pods from their "
        "arrival at the watcher"
    )
    for population in figures.populations:
        goal = (
            ""
            if population.goal is None
            else f"{population.goal:g} {'reached' if population.is_reached else 'MISSED'}"
        )
        whole = [f"{population.at(percent):.1f}" for percent in (50, 99, 100)]
        stages = [
            f"{population.at(50, stage):.1f} / {population.at(99, stage):.1f}" for stage in STAGES
        ]
        followed = f"{len(population.ways)} of {len(population.ways) + population.lost}"
        shown.add_row(population.name, followed, *whole, goal, *stages)
    return shown


def picture(figures: LatencyFigures) -> str:
    """Draw the distribution of the latencies as SVG."""
    lines = [
        ReadyLine(population.name, sorted(one.total for one in population.ways))
        for population in figures.populations
    ]
    return chart.shares(lines, title="from a pod's change to the start of the reconcile", unit="ms")


def goals(figures: LatencyFigures) -> list[FigureGoal]:
    """Return the goal of each group of changes that has one."""
    return [
        FigureGoal(
            figure=f"a pod's change to its reconcile, {population.name}, p99",
            value=f"{population.at(99):.1f} ms",
            goal=f"{population.goal:g} ms",
            is_reached=population.is_reached,
        )
        for population in figures.populations
        if population.goal is not None
    ]


def main() -> int:
    """Measure, print and write the figures. Return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=300, help="RayClusters that scale up (300)")
    parser.add_argument(
        "--rest",
        type=int,
        default=AT_REST,
        help=f"clusters at rest with pods that are changed ({AT_REST})",
    )
    parser.add_argument(
        "--changes",
        type=int,
        default=CHANGES,
        help=f"changes while nothing else happens ({CHANGES})",
    )
    parser.add_argument(
        "-o",
        choices=["table", "json"],
        default="table",
        help="what goes to standard output (table)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=OUTPUT,
        help="folder of figures and pictures (build/bench)",
    )
    asked = parser.parse_args()
    for name, count, least in (
        ("-n", asked.n, 1),
        ("--rest", asked.rest, 2),
        ("--changes", asked.changes, 1),
    ):
        if count < least:
            parser.error(f"{name} {count}: expected {least} or more")
    logging.configure("bench", level="WARNING")
    figures = report.measured(
        measure(LatencyOptions(clusters=asked.n, at_rest=asked.rest, changes=asked.changes))
    )
    report.show(figures, lambda: table(figures), form=asked.o, width=180)
    report.write(figures, asked.out / "latency", picture=picture(figures))
    return judged("latency", goals(figures))


if __name__ == "__main__":
    sys.exit(main())
