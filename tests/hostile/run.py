"""The story of a run: the victim in calm, then beside the tenants; what the processes, the audit log and the objects say of it."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from bench import heads, rig
from bench.rig import Rig
from common.kube.client import KubeClient
from common.kube.resources import NAMESPACE as NAMESPACES
from common.kube.resources import SECRET
from hostile import tenants, verdict, victim
from hostile.tenants import Tenants
from hostile.verdict import Figures, Reaction
from hostile.victim import Victim
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from raybus_cli.up.programs import BusAccess
from scenario.hostile import attacks as drawn
from support import manifests
from support.audit_log import ACCOUNT, Line
from support.manifests import BASE, DEPLOY
from support.servers import services
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from support.servers.relayed import secured_nats
from support.servers.services import Service
from support.waiting import eventually_true

PREY: Final = "tenant-b"
"""A namespace without Ray objects, with the Secret after which the attacks reach."""
ROUTES: Final = frozenset({"Gateway", "HTTPRoute", "GRPCRoute"})
RIGHTS: Final = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
READY_SECONDS: Final = 120.0
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    attacks: int
    seed: int
    calm: float
    """Seconds in which the victim is alone."""
    is_timed: bool
    at_once: int
    """Attacks of one tenant at the same time."""
    logs: Path


async def measure(wanted: Wanted, say: Callable[[str], None]) -> Figures:
    """Run it all."""
    attacks = drawn.collect(drawn.attacks(), wanted.attacks, wanted.seed)
    async with AsyncExitStack() as stack:
        say(f"{len(attacks)} attacks are drawn; starting API server, etcd, controllers, NATS")
        played = await stack.enter_async_context(heads.played())
        found = await stack.enter_async_context(rig.fresh())
        await _install(found)
        secured = await stack.enter_async_context(secured_nats(found.work / "nats"))
        hostile = await stack.enter_async_context(tenants.admitted(found.control_plane, found.kube, played))
        await stack.enter_async_context(_gateways(found.kube))
        bus = BusAccess(url=secured.server.url, credentials=found.work / "nats")
        running = await stack.enter_async_context(services.running(found.control_plane, bus, wanted.logs, say))
        await _ready(running)
        return await _beside(wanted, found, hostile, running, attacks, say)


async def _beside(
    wanted: Wanted,
    found: Rig,
    hostile: Tenants,
    running: Sequence[Service],
    attacks: list[Any],
    say: Callable[[str], None],
) -> Figures:
    pids = {each.name: each.child.pid for each in running}
    prey = Victim(found.kube)
    await prey.prepare()
    say(f"the victim serves; {wanted.calm:g} s of calm")
    calm = await prey.change(seconds=wanted.calm)
    before = {each.name: await _late(each) for each in running}
    say("the tenants begin")
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        changing = group.create_task(prey.change(seconds=float("inf")))
        telling = group.create_task(_tell(hostile, len(attacks), say))
        await hostile.attack(attacks, at_once=wanted.at_once)
        telling.cancel()
        changing.cancel()
    seconds = time.monotonic() - began
    lines = await asyncio.to_thread(_lines, found.control_plane.audit_log)
    owners = {victim.NAMESPACE: (victim.CLUSTER, victim.SERVICE), **dict.fromkeys(tenants.NAMESPACES)}
    return Figures(
        seed=wanted.seed,
        attacks=len(attacks),
        refused=hostile.refused,
        stored=hostile.stored,
        seconds=round(seconds, 1),
        unexplained=hostile.unexplained,
        outside=sorted({str(each) for each in verdict.outside(lines, owners)}),
        requests=sum(each.user.username.startswith(ACCOUNT) for each in lines),
        services=[await _judged(each, pid=pids[each.name], before=before[each.name]) for each in running],
        reactions=[
            Reaction(change=what, calm=calm.get(what, []), beside=prey.taken.get(what, []))
            for what in (victim.SCALE, victim.UPGRADE)
        ],
        is_timed=wanted.is_timed,
    )


async def _install(found: Rig) -> None:
    """Give the services their rights, and make the namespaces of those who are attacked."""
    documents = [*manifests.read(BASE), *manifests.read(DEPLOY / "rights" / "everywhere")]
    async with found.control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions([each for each in held if each["spec"]["names"]["kind"] in ROUTES])
        for kind in RIGHTS:
            for document in manifests.of_kind(documents, kind):
                if kind in {"ServiceAccount", "Role", "RoleBinding"}:
                    document["metadata"].setdefault("namespace", manifests.NAMESPACE)
                await api.apply(document)
    for name in (victim.NAMESPACE, PREY):
        await found.kube.create(NAMESPACES, None, {"metadata": {"name": name}})
    await found.kube.create(SECRET, PREY, {"metadata": {"name": "prod-ray"}, "stringData": {"auth_token": "s3cret"}})


@asynccontextmanager
async def _gateways(kube: KubeClient) -> AsyncGenerator[None]:
    """Play the gateways of the tenants."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(GatewayController(kube, each).run()) for each in tenants.NAMESPACES]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _ready(running: Sequence[Service]) -> None:
    for service in running:

        async def is_ready(service: Service = service) -> bool:
            return await _asked(service, "/readyz") is not None

        await eventually_true(is_ready, within=READY_SECONDS, every=0.2, what=f"{service.name} being ready")


async def _asked(service: Service, path: str) -> str | None:
    """Return what a service answers with 200, None for anything else."""
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
            answer = await client.get(f"http://127.0.0.1:{service.port}{path}")
    except httpx.HTTPError:
        return None
    return answer.text if answer.is_success else None


def _samples(text: str, name: str) -> dict[str, float]:
    """Return the values of one metric by their labels."""
    return {labels: float(value) for found, labels, value in _SAMPLE.findall(text) if found == name}


async def _late(service: Service) -> float:
    """Count how often the loop was blocked for too long."""
    text = await _asked(service, "/metrics") or ""
    count = _samples(text, "raybus_event_loop_lag_seconds_count")
    within = _samples(text, "raybus_event_loop_lag_seconds_bucket")
    return sum(count.values()) - within.get(f'le="{verdict.LONGEST_LAG:g}"', 0.0)


async def _judged(service: Service, *, pid: int, before: float) -> verdict.Service:
    faults = _samples(await _asked(service, "/metrics") or "", "raybus_invariant_violations_total")
    return verdict.Service(
        name=service.name,
        restarts=int(service.child.pid != pid or not service.child.is_running),
        late=round(await _late(service) - before),
        peak_mib=_peak_mib(service.child.pid),
        faults=round(sum(faults.values())),
    )


def _peak_mib(pid: int) -> float:
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return round(int(found[1]) / 1024, 1) if found else 0.0
    return 0.0


def _lines(log: Path) -> list[Line]:
    decode = msgspec.json.Decoder(Line).decode
    with log.open("rb") as lines:
        return [decode(line) for line in lines if line.endswith(b"\n")]


async def _tell(hostile: Tenants, count: int, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(5)
        say(f"{hostile.done} of {count} attacks; {hostile.stored} objects stored, {hostile.refused} refused")
