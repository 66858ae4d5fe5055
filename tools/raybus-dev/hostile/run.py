"""A run in three phases: the victim alone, beside harmless tenants, beside hostile tenants.

At the end, the processes of the services, the audit log and the objects are judged.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from bench import heads, rig
from bench.rig import Rig
from common.feature_gates import FeatureGate
from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE as NAMESPACES
from common.kube.resources import SECRET
from common.ray import exposition
from hostile import borders, shares, tenants, verdict, victim
from hostile.ray_jobs import JobDashboards
from hostile.tenants import Tenants
from hostile.verdict import RunFigures, VictimReaction
from hostile.victim import Victim
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from raybus_cli.up.programs import BusAccess
from scenario.hostile import attacks as drawn
from scenario.hostile.attacks import Attack
from scenario.hostile.numbered import KNOWN
from support import audit_log, manifests
from support.audit_log import ACCOUNT, Line
from support.manifests import BASE, DEPLOY
from support.servers.fleet import Replica, services_with_own_rights
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from support.servers.relayed import secured_nats

PREY: Final = "tenant-b"
"""A namespace without Ray objects. It contains a Secret that attacks try to read."""
ROUTES: Final = frozenset({"Gateway", "HTTPRoute", "GRPCRoute"})
RIGHTS: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
)
GATEWAYS_EVERY: Final = 0.5
"""Seconds between two reads of all Gateways and routes by the simulated gateway controller.

Shorter intervals would keep the API server busy.
"""


class HostileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line. `is_timed` is false if times are not judged."""

    attacks: int
    seed: int
    samples: int
    """Number of raybus's reactions that a phase needs for each kind of change.

    The phases without attacks and the control phase end when they have this number.
    """
    is_timed: bool
    rate: float
    """Attacks started per second."""
    logs: Path


async def measure(wanted: HostileOptions, emit: Callable[[str], None]) -> RunFigures:
    """Carry out the run and return its figures."""
    attacks = [
        *(each.attack for each in KNOWN),
        *drawn.collect(drawn.attacks(), wanted.attacks, wanted.seed),
    ]
    async with AsyncExitStack() as stack:
        emit(f"{len(attacks)} attacks are drawn; starting API server, etcd, controllers, NATS")
        played = await stack.enter_async_context(heads.played())
        JobDashboards(played)
        bench_rig = await stack.enter_async_context(rig.fresh())
        await _install(bench_rig)
        secured = await stack.enter_async_context(
            secured_nats(bench_rig.work / "nats", subscribers=(borders.SUBSCRIBER,))
        )
        hostile = await stack.enter_async_context(
            tenants.admitted(bench_rig.control_plane, bench_rig.kube, played)
        )
        await stack.enter_async_context(_simulate_gateways(bench_rig.kube))
        bus = BusAccess(url=secured.server.url, credentials=bench_rig.work / "nats")
        fleet = await stack.enter_async_context(
            services_with_own_rights(
                bench_rig.control_plane, bus, wanted.logs, emit, gates={FeatureGate.CRON_JOB: True}
            )
        )
        running = list(fleet.all())
        figures = await _measure_under_attack(wanted, bench_rig, hostile, running, attacks, emit)
        return msgspec.structs.replace(
            figures, crossed=await borders.crossed(hostile.clients, secured)
        )


async def _measure_under_attack(
    wanted: HostileOptions,
    bench_rig: Rig,
    hostile: Tenants,
    running: Sequence[Replica],
    attacks: list[Any],
    emit: Callable[[str], None],
) -> RunFigures:
    pids = {process.name: process.pid for process in running}
    phases: dict[str, RunPhase] = {}
    prey = Victim(bench_rig.kube)
    async with prey.watched():
        await prey.prepare()
        emit(
            f"the victim serves; calm until it has reacted {wanted.samples} times to each kind of "
            "change"
        )
        with _record_phase(phases, verdict.CALM) as phase:
            phase.reactions = await prey.change(enough=wanted.samples)
        if wanted.is_timed:
            emit("control: the tenants write what raybus leaves to another controller")
            with _record_phase(phases, verdict.CONTROL) as phase:
                phase.reactions = await _measure_control(wanted, hostile.anew(), prey, attacks)
        before = {process.name: await _count_loop_blockages(process) for process in running}
        emit("the tenants begin")
        with _record_phase(phases, verdict.UNDER_ATTACK) as phase:
            async with prey.changing() as phase.reactions, asyncio.TaskGroup() as group:
                progress = group.create_task(_report_progress(hostile, len(attacks), emit))
                await hostile.attack(attacks, rate=wanted.rate)
                progress.cancel()
    emit("the attacks are over; judging")
    services = [
        await _measure_service(process, pid=pids[process.name], before=before[process.name])
        for process in running
    ]
    lines = await asyncio.to_thread(_read_lines, bench_rig.control_plane.audit_log)
    owners = {
        victim.NAMESPACE: (victim.CLUSTER, victim.SERVICE, victim.JOB),
        **dict.fromkeys(tenants.NAMESPACES),
    }
    return RunFigures(
        seed=wanted.seed,
        attacks=len(attacks),
        refused=hostile.refused,
        stored=hostile.stored,
        seconds=round(phases[verdict.UNDER_ATTACK].seconds, 1),
        unexplained=hostile.unexplained,
        outside=sorted({str(line) for line in verdict.outside(lines, owners)}),
        requests=sum(line.user.username.startswith(ACCOUNT) for line in lines),
        services=services,
        reactions=[_build_reaction(what, phases, lines) for what in victim.CHANGES],
        busy={name: round(phase.busy, 2) for name, phase in phases.items()},
        is_timed=wanted.is_timed,
    )


class RunPhase(msgspec.Struct):
    """The measurements of one phase of the run."""

    reactions: victim.Reactions = {}
    seconds: float = 0.0
    busy: float = 0.0
    """Fraction of the machine's processor time that was used, from 0 to 1."""


@contextmanager
def _record_phase(phases: dict[str, RunPhase], name: str) -> Generator[RunPhase]:
    phase = phases[name] = RunPhase()
    began, was = time.monotonic(), _read_processor_ticks()
    yield phase
    phase.seconds, now = time.monotonic() - began, _read_processor_ticks()
    phase.busy = (now.busy - was.busy) / max(1, now.total - was.total)


class Ticks(msgspec.Struct, frozen=True):
    """Ticks of all processors since the machine started."""

    busy: int
    total: int


def _read_processor_ticks() -> Ticks:
    ticks = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return Ticks(sum(ticks) - ticks[3] - ticks[4], sum(ticks))


async def _measure_control(
    wanted: HostileOptions, hostile: Tenants, prey: Victim, attacks: list[Any]
) -> victim.Reactions:
    """Measure the victim in the control phase.

    Tenants write the same objects as in attacks, but name another controller in them, so raybus has
    nothing to reconcile. The phase ends when the victim has had `samples` reactions of each kind.
    """
    is_over = False

    def unmanaged() -> Iterator[Attack]:
        for attack in cycle(attacks):
            if is_over:
                return
            yield tenants.unmanaged(attack)

    async with asyncio.TaskGroup() as group:
        group.create_task(hostile.attack(unmanaged(), rate=wanted.rate, prefix="c"))
        taken = await prey.change(enough=wanted.samples)
        is_over = True
    return taken


def _build_reaction(what: str, phases: dict[str, RunPhase], lines: list[Line]) -> VictimReaction:
    spans = {name: phase.reactions.get(what, []) for name, phase in phases.items()}
    own = [line for line in lines if line.object_ref.namespace == victim.NAMESPACE]
    return VictimReaction(
        change=what,
        taken={
            name: [round(span.seconds, 3) for span in spans_of_phase]
            for name, spans_of_phase in spans.items()
        },
        shares={
            name: shares.compute_shares(spans_of_phase, own)
            for name, spans_of_phase in spans.items()
        },
    )


async def _install(bench_rig: Rig) -> None:
    """Install the CRDs of routes and the services' RBAC rights; create the test's namespaces.

    One namespace is the victim's, the other has a Secret.
    """
    rights = (DEPLOY / "rights" / part for part in ("everywhere", "kubernetes-proxy"))
    documents = [document for folder in (BASE, *rights) for document in manifests.read(folder)]
    async with bench_rig.control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions(
            [document for document in held if document["spec"]["names"]["kind"] in ROUTES]
        )
        for kind in RIGHTS:
            for document in manifests.of_kind(documents, kind):
                if kind in {"ServiceAccount", "Role", "RoleBinding"}:
                    document["metadata"].setdefault("namespace", manifests.NAMESPACE)
                await api.apply(document)
    for name in (victim.NAMESPACE, PREY):
        await bench_rig.kube.create(NAMESPACES, None, {"metadata": {"name": name}})
    await bench_rig.kube.create(
        SECRET, PREY, {"metadata": {"name": "prod-ray"}, "stringData": {"auth_token": "s3cret"}}
    )


@asynccontextmanager
async def _simulate_gateways(kube: KubeClient) -> AsyncGenerator[None]:
    """Simulate the gateway controller of all namespaces during the `with` block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(GatewayController(kube, None, every=GATEWAYS_EVERY).run())
        try:
            yield
        finally:
            task.cancel()


async def _get_page(service: Replica, path: str) -> str | None:
    """Return the body of a service's answer to a GET; None without a successful answer."""
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
            answer = await client.get(f"http://127.0.0.1:{service.port}{path}")
    except httpx.HTTPError:
        return None
    return answer.text if answer.is_success else None


def _sum_metric(page: str, metric: str, *, le: float | None = None) -> float:
    """Return the sum of a metric's series on a metrics page.

    With `le`, add up only the buckets with this upper bound.
    """
    bound = None if le is None else f"{le:g}".encode()
    return sum(
        line.value
        for line in exposition.lines(page.encode(), [metric.encode()])
        if line.labels.get(b"le") == bound
    )


async def _count_loop_blockages(service: Replica) -> float:
    """Return how often a service's event loop was blocked for longer than `verdict.MAX_LAG`."""
    page = await _get_page(service, "/metrics") or ""
    lag = "raybus_event_loop_lag_seconds"
    return _sum_metric(page, f"{lag}_count") - _sum_metric(
        page, f"{lag}_bucket", le=verdict.MAX_LAG
    )


async def _measure_service(service: Replica, *, pid: int, before: float) -> verdict.VictimService:
    page = await _get_page(service, "/metrics") or ""
    return verdict.VictimService(
        name=service.service,
        restarts=int(service.pid != pid or not service.is_running),
        loop_blockages=round(await _count_loop_blockages(service) - before),
        peak_mib=_read_peak_mib(service.pid),
        faults=round(_sum_metric(page, "raybus_invariant_violations_total")),
    )


def _read_peak_mib(pid: int) -> float:
    with suppress(OSError):
        match = re.search(
            r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
        )
        return round(int(match[1]) / 1024, 1) if match else 0.0
    return 0.0


def _read_lines(log: Path) -> list[Line]:
    """Return the services' requests, and all other requests in the victim's namespace."""
    return [
        line
        for line in audit_log.lines(log)
        if line.user.username.startswith(ACCOUNT) or line.object_ref.namespace == victim.NAMESPACE
    ]


async def _report_progress(hostile: Tenants, count: int, emit: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(5)
        emit(
            f"{hostile.done} of {count} attacks; {hostile.stored} objects stored, "
            f"{hostile.refused} refused"
        )
