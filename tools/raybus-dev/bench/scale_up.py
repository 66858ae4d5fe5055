"""Measures the scale-up of N RayClusters, from the first request until all clusters are ready.

Optionally, some idle minutes are measured afterwards.
"""

import asyncio
import time
from statistics import median
from typing import Final

import msgspec

from bench import background, cached_pods, programs
from bench.audit import Asked, AuditLog
from bench.contenders import Contender, Operator, Raybus
from bench.rig import BACKGROUND, Rig, fresh, namespace_of
from common.kube.resources import POD

QUIET_SECONDS: Final = 3.0
"""Seconds without a request after which an operator counts as idle."""
SETTLING: Final = 15.0
"""Seconds without a write after which the operator counts as being at rest."""
SETTLING_TIMEOUT: Final = 600.0
"""Seconds to wait for an operator to stop writing, before the measurement fails."""

BYTES_SENT: Final = ("apiserver_response_sizes_sum", "apiserver_watch_events_sizes_sum")
"""Metrics of the API server with the bytes that it sent: answers, and events of watches."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Writes to the API server and processor time of an operator in idle minutes."""

    minutes: float
    writes: dict[str, int]
    cpu_seconds: float


class ScaleUpFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one operator.

    Times are in seconds and memory in MiB, unless the name has a unit.
    """

    name: str
    clusters: int
    wall: float
    ready_at: list[float]
    """Sorted seconds from the first request until each cluster was ready."""
    latency_p50: float = 0.0
    latency_p99: float = 0.0
    requests_per_cluster: float = 0.0
    status_writes_per_cluster: float = 0.0
    requests: dict[str, int] = {}
    cpu_seconds: float = 0.0
    cpu_by_program: dict[str, float] = {}
    """Processor seconds of each program of the operator during the run."""
    peak_pss: float = 0.0
    computation_ms: float = 0.0
    """Median milliseconds of processor time of a fixed computation during the run.

    It shows how fast the machine was.
    """
    kib_per_pod: float = 0.0
    """KiB of memory (PSS) by which the operator's processes grew, per pod."""
    kib_per_cached_pod: float = 0.0
    """KiB of memory of a pod in a raybus reconciler's cache; 0 for other operators."""
    control_plane_cpu: dict[str, float] = {}
    """Processor seconds of the control plane during the run, by program."""
    server_bytes: int = 0
    """Bytes of answers and watch events that the API server sent to all clients during the run."""
    idle: Idle | None = None

    @property
    def cpu_of_programs(self) -> dict[str, float]:
        """Processor time of each program in seconds, of the control plane and of the operator."""
        return self.control_plane_cpu | self.cpu_by_program

    @property
    def first_tenth(self) -> float:
        """Seconds from the first ready cluster until a tenth of all clusters was ready."""
        return self.ready_at[len(self.ready_at) // 10] - self.ready_at[0]


async def floor(count: int) -> ScaleUpFigures:
    """Measure the floor: create the pods and Services of `count` clusters without an operator.

    Each operator is compared with the floor.
    """
    async with (
        fresh(clusters=count) as rig,
        background.watching(rig, background.PODS, background.is_running) as running,
    ):

        async def one(index: int) -> None:
            await background.create_bare(rig, namespace_of(index), f"c{index:05d}")

        async with programs.watched(lambda: ()) as seen:
            sent = await bytes_sent(rig)
            began, before = time.monotonic(), control_plane_cpu(rig)
            await background.each(count, one)
            await running.count(count * (background.WORKERS + 1))
            wall, used = time.monotonic() - began, control_plane_cpu(rig)
            sent = await bytes_sent(rig) - sent
        servers = programs.since(before, used)
        moments = sorted(running.at.values())[background.WORKERS :: background.WORKERS + 1]
        first = max(moments) - wall
        ready_at = [moment - first for moment in moments]
        return ScaleUpFigures(
            name="floor",
            clusters=count,
            wall=wall,
            ready_at=ready_at,
            computation_ms=median(seen.computations),
            control_plane_cpu=servers,
            server_bytes=sent,
        )


async def measure(contender: Contender, count: int, *, idle_minutes: float) -> ScaleUpFigures:
    """Measure one operator with `count` clusters on a new control plane.

    With `idle_minutes` above 0, also measure the operator at rest for that time.
    """
    async with fresh(contender.crds, clusters=count) as rig, contender.on(rig) as operator:
        await at_rest(rig.audit)
        figures = await _measure_scale_up(rig, operator, count)
        if isinstance(contender, Raybus):
            kib_per_pod = cached_pods.kib_each(await rig.kube.list(POD, BACKGROUND))
            figures = msgspec.structs.replace(figures, kib_per_cached_pod=kib_per_pod)
        if not idle_minutes:
            return figures
        return msgspec.structs.replace(
            figures, idle=await _measure_idle(rig, operator, idle_minutes)
        )


async def _measure_scale_up(rig: Rig, operator: Operator, count: int) -> ScaleUpFigures:
    asked: dict[str, float] = {}

    async def one(index: int) -> None:
        name = f"c{index:05d}"
        asked[name] = await background.create_cluster(rig, namespace_of(index), name)

    async with background.watching(rig, background.CLUSTERS, background.is_ready) as ready:
        known = len(ready.at)
        mark, memory = rig.audit.here(), programs.pss_mib(operator.pids())
        sent = await bytes_sent(rig)
        own, servers = programs.cpu_by_program(operator.pids()), control_plane_cpu(rig)
        async with programs.watched(operator.pids) as seen:
            began = asyncio.get_running_loop().time()
            await background.each(count, one)
            await ready.count(count + known)
            wall = asyncio.get_running_loop().time() - began
            requests = await at_rest(rig.audit, since=mark)
        own = programs.since(own, programs.cpu_by_program(operator.pids()))
        servers = programs.since(servers, control_plane_cpu(rig))
        sent = await bytes_sent(rig) - sent
        at = {
            name: moment
            for (namespace, name), moment in ready.at.items()
            if namespace.startswith(BACKGROUND)
        }
    latencies = sorted(at[name] - moment for name, moment in asked.items())
    return ScaleUpFigures(
        name=operator.name,
        clusters=count,
        wall=wall,
        ready_at=sorted(moment - began for moment in at.values()),
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        requests_per_cluster=requests.requests / count,
        status_writes_per_cluster=requests.status_writes / count,
        requests=requests.by_kind,
        cpu_seconds=sum(own.values()),
        cpu_by_program=own,
        control_plane_cpu=servers,
        server_bytes=sent,
        peak_pss=seen.peak_pss_mib,
        computation_ms=median(seen.computations),
        kib_per_pod=(programs.pss_mib(operator.pids()) - memory)
        * 1024
        / (count * (background.WORKERS + 1)),
    )


def control_plane_cpu(rig: Rig) -> dict[str, float]:
    """Return the processor seconds that each program of the control plane has used so far."""
    identities = (program.identity for program in rig.control_plane.running)
    return {
        identity.name: programs.cpu_seconds(programs.tree(identity.pid)) for identity in identities
    }


async def bytes_sent(rig: Rig) -> int:
    """Return the bytes of answers and watch events that the API server has sent so far."""
    return sum_bytes((await rig.kube.request("GET", "/metrics")).decode())


def sum_bytes(page: str) -> int:
    """Return the bytes that an API server has sent, according to its metrics page."""
    return round(
        sum(
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith(BYTES_SENT)
        )
    )


async def at_rest(audit: AuditLog, *, since: int | None = None) -> Asked:
    """Wait until the operator sends no more requests.

    Return its requests since the position `since` in the audit log, or since the call.
    """
    mark = audit.here() if since is None else since
    last = audit.since(mark)
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        now = audit.since(mark)
        if now.requests == last.requests:
            return now
        last = now


async def wait_until_no_writes(audit: AuditLog) -> None:
    """Wait until the operator has written nothing for `SETTLING` seconds.

    Raises `TimeoutError` after `SETTLING_TIMEOUT` seconds.
    """
    async with asyncio.timeout(SETTLING_TIMEOUT):
        while True:
            mark = audit.here()
            await asyncio.sleep(SETTLING)
            if not audit.since(mark).changes:
                return


async def _measure_idle(rig: Rig, operator: Operator, minutes: float) -> Idle:
    mark, cpu = rig.audit.here(), programs.cpu_seconds(operator.pids())
    await asyncio.sleep(minutes * 60)
    asked = rig.audit.since(mark)
    return Idle(
        minutes=minutes,
        writes=asked.changes,
        cpu_seconds=programs.cpu_seconds(operator.pids()) - cpu,
    )


def percentile(ordered: list[float], percent: int) -> float:
    """Return a percentile of values in ascending order; 0 for an empty list."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0
