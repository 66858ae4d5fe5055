"""Causes in the services: they end, hang, are too slow, have a bug, or run twice."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from bench.rig import BACKGROUND
from chaos.stack import PROBES
from common.kube.resources import RAY_CLUSTER
from integration.monitoring import objects
from integration.monitoring.cause import AlarmSetup, Cause
from raybus_cli.up.programs import BusAccess
from support.servers import fleet
from support.servers.fault_proxy import PASSES, Asked, Fate
from support.servers.fleet import Replica
from support.waiting import eventually_true

CLUSTERS: Final = "cluster-reconciler"
SERVICES: Final = "service-reconciler"
TRAFFIC: Final = "traffic-manager"
CROWDED: Final = 40
"""Number of RayClusters that are created at once."""
DELAY: Final = 4.0
"""Seconds by which each request to the API server is delayed; there are four workers."""
BLOCKED_TIMES: Final = 2
BLOCKED_SECONDS: Final = 2.7
BETWEEN_SECONDS: Final = 1.2
"""Seconds between two changes. Prometheus scrapes every second."""
UNLUCKY: Final = "unlucky"
BUG: Final = f"""\
import cluster_reconciler.plan as plan

right = plan.make_plan

def make_plan(observed, *arguments, **more):
    if observed.cluster.metadata.name == "{UNLUCKY}":
        raise ZeroDivisionError("planted by a test")
    return right(observed, *arguments, **more)

plan.make_plan = make_plan
"""
"""Program with a bug that Python runs before it starts the service (sitecustomize)."""
LATER: Final = """\
from common.bus import forms

forms.FORMS["Pod"] = forms.Form(2, 0)
"""
"""Program that makes a service a later release, with another form of pods."""


@asynccontextmanager
async def _frozen(setup: AlarmSetup) -> AsyncGenerator[None]:
    (replica,) = setup.ground.stack.fleet.of(TRAFFIC)
    replica.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        replica.send_signal(signal.SIGCONT)


@asynccontextmanager
async def _blocked(setup: AlarmSetup) -> AsyncGenerator[None]:
    (replica,) = setup.ground.stack.fleet.of(SERVICES)
    for _ in range(BLOCKED_TIMES):
        replica.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(BLOCKED_SECONDS)
        finally:
            replica.send_signal(signal.SIGCONT)
        await asyncio.sleep(BETWEEN_SECONDS)
    yield


@asynccontextmanager
async def _no_replica(setup: AlarmSetup) -> AsyncGenerator[None]:
    setup.ground.stack.fleet.scale(SERVICES, 0)
    try:
        yield
    finally:
        setup.ground.stack.fleet.scale(SERVICES, 1)
    await setup.ground.stack.fleet.ready()


@asynccontextmanager
async def _lease_that_cannot_be_written(setup: AlarmSetup) -> AsyncGenerator[None]:
    async with _judged(
        setup, TRAFFIC, lambda asked: Fate(status=403) if asked.is_write else PASSES
    ):
        yield


@asynccontextmanager
async def _slow_api_server(setup: AlarmSetup) -> AsyncGenerator[None]:
    kube = setup.ground.stack.kube
    names = [f"crowded-{number}" for number in range(CROWDED)]

    def slow(asked: Asked) -> Fate:
        return PASSES if asked.is_watch or "/leases" in asked.target else Fate(delay=DELAY)

    async with _judged(setup, CLUSTERS, slow):
        for name in names:
            body = objects.a_cluster(name)
            await kube.create(
                RAY_CLUSTER, BACKGROUND, {**body, "spec": {**body["spec"], "suspend": True}}
            )
        yield
    for name in names:
        await kube.delete(RAY_CLUSTER, BACKGROUND, name)


@asynccontextmanager
async def _planted_bug(setup: AlarmSetup) -> AsyncGenerator[None]:
    stack, folder = setup.ground.stack, setup.ground.work / "bug"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BUG)
    async with _another(setup, environment={"PYTHONPATH": str(folder)}):
        stack.fleet.scale(CLUSTERS, 0)
        try:
            await stack.kube.create(RAY_CLUSTER, BACKGROUND, objects.a_cluster(UNLUCKY))
            yield
        finally:
            stack.fleet.scale(CLUSTERS, 1)
            await stack.fleet.ready()
    await stack.kube.delete(RAY_CLUSTER, BACKGROUND, UNLUCKY)


@asynccontextmanager
async def _later_release(setup: AlarmSetup) -> AsyncGenerator[None]:
    folder = setup.ground.work / "later"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LATER)
    async with _another(setup, environment={"PYTHONPATH": str(folder)}):
        yield


@asynccontextmanager
async def _strange_namespace(setup: AlarmSetup) -> AsyncGenerator[None]:
    async with _another(setup, namespace=PROBES):
        yield


@asynccontextmanager
async def _judged(
    setup: AlarmSetup, service: str, judge: Callable[[Asked], Fate]
) -> AsyncGenerator[None]:
    setup.ground.stack.fleet.judge(service, judge)
    try:
        yield
    finally:
        setup.ground.stack.fleet.judge(service, None)


@asynccontextmanager
async def _another(
    setup: AlarmSetup,
    *,
    namespace: str = fleet.NAMESPACE,
    environment: dict[str, str] | None = None,
) -> AsyncGenerator[None]:
    """Run one more cluster-reconciler, scraped like the others, for the length of a block."""
    found, work = setup.ground, setup.ground.work
    where = fleet.Ground(
        access=found.stack.control_plane.access,
        bus=BusAccess(url=found.stack.nats.url, credentials=found.stack.nats.folder),
        work=work,
        log_dir=found.logs,
        environment=environment or {},
        namespace=namespace,
    )
    replica = Replica(
        CLUSTERS, 90 + len(list(work.glob(f"{CLUSTERS}-9*.kubeconfig"))), where, found.emit
    )

    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", replica.port)
        except OSError:
            return False
        writer.close()
        return True

    async with asyncio.TaskGroup() as group:
        running = group.create_task(replica.run())
        found.more.append(replica)
        try:
            await eventually_true(answers, every=0.1, what=f"{replica.name}; see {found.logs}")
            yield
        finally:
            found.more.remove(replica)
            running.cancel()


PROCESSES: Final = (
    Cause(
        text="a cluster-reconciler with a planted bug: its planner divides by zero for one RayCluster",
        alerts=frozenset({"RaybusInvariantViolated"}),
        provoked=_planted_bug,
    ),
    Cause(
        text=f"{CROWDED} RayClusters at once, while each request of cluster-reconciler takes {DELAY:g} s",
        alerts=frozenset({"RaybusQueueWaitHigh"}),
        provoked=_slow_api_server,
    ),
    Cause(
        text="a replica that keeps its Lease in another namespace (RAYBUS_NAMESPACE)",
        alerts=frozenset({"RaybusPartitionsHeldTwice"}),
        provoked=_strange_namespace,
    ),
    Cause(
        text="a cluster-reconciler of a later release runs beside the watcher of this one",
        alerts=frozenset({"RaybusStateUnreadable"}),
        provoked=_later_release,
    ),
    Cause(
        text="service-reconciler is blocked for 2.7 s, twice in a row",
        alerts=frozenset({"RaybusEventLoopBlocked"}),
        provoked=_blocked,
    ),
    Cause(
        text="service-reconciler is scaled to 0",
        alerts=frozenset({"RaybusPartitionsWithoutOwner"}),
        provoked=_no_replica,
    ),
    Cause(
        text="the API server rejects each write of traffic-manager, including its Lease (403)",
        alerts=frozenset({"RaybusPartitionsWithoutOwner"}),
        provoked=_lease_that_cannot_be_written,
    ),
    Cause(
        text="traffic-manager hangs (SIGSTOP)",
        alerts=frozenset({"RaybusServiceDown"}),
        provoked=_frozen,
    ),
)
