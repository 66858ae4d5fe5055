"""The replicas of raybus: each a process with a fault-injection proxy to the API server, restarted
when it ends; the number of replicas can be changed.
"""

import asyncio
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from localcluster import kubeconfig
from localcluster.control_plane import ControlPlane
from localcluster.kubeconfig import Access
from raybus_cli import child_processes
from raybus_cli.up import programs
from raybus_cli.up.programs import MODULES, BusAccess, ChildProgram, ProgramCommand, UpOptions
from support.servers import fault_proxy
from support.servers.fault_proxy import FaultProxy, Judge
from support.waiting import eventually_true

NAMESPACE: Final = "raybus"
"""Namespace of the Leases."""
TIMEOUT: Final = 60.0
READY_SECONDS: Final = 120.0


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """The environment in which replicas run: API server, NATS, files and variables."""

    access: Access
    bus: BusAccess
    work: Path
    log_dir: Path
    use_fault_proxies: Callable[[str], bool] = lambda _service: True
    """Function that returns whether a service uses a fault proxy; the other services send their
    requests directly to the API server."""
    kubeconfigs: Mapping[str, Path] = {}
    """By service: the kubeconfig that the service uses instead of `access` and a fault proxy."""
    environment: dict[str, str] = {}
    """Additional environment variables of all services."""
    gates: dict[str, bool] = {}
    """Feature gates that differ from the defaults."""
    namespace: str = NAMESPACE
    """Namespace of the replicas' Leases."""
    watch_namespaces: str = ""
    """The namespaces that services watch; empty for all."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A NATS server whose metrics are exported."""

    service: str = "nats"
    name: str
    """Name of the server's pod."""
    monitor: int
    """Monitoring port of the server."""
    port: int
    """Port of `/metrics`."""

    @classmethod
    def on_free_ports(cls, name: str) -> "Observed":
        monitor, port = child_processes.find_free_ports(2)
        return cls(name=name, monitor=monitor, port=port)


class Replica:
    """One replica of a service, whose process may be replaced by a new one."""

    def __init__(
        self, service: str, number: int, ground: Ground, emit: Callable[[str], None]
    ) -> None:
        self.service = service
        self.name = f"{service}-{number}"
        """Name and identity of the replica; it stays the same when the process restarts, like that
        of a pod."""
        self.fault_proxy = FaultProxy(self.name, ground.access)
        self.port = child_processes.find_free_ports(1)[0]
        self._ground = ground
        self._emit = emit
        self._child: ChildProgram | None = None

    @property
    def pid(self) -> int:
        """Return the process id of the replica; 0 before its start."""
        return self._child.pid if self._child is not None else 0

    @property
    def is_running(self) -> bool:
        """Return whether the process of the replica runs."""
        return self._child is not None and self._child.is_running

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self._child is not None:
            self._child.send(number)

    async def run(self) -> None:
        """Run the process and restart it until cancelled; then end it gracefully."""
        async with self.fault_proxy.opened():
            through = self._ground.use_fault_proxies(self.service)
            access = self.fault_proxy.access if through else self._ground.access
            config = self._ground.kubeconfigs.get(self.service) or kubeconfig.write(
                self._ground.work / f"{self.name}.kubeconfig", "proxy", access
            )
            self._child = ChildProgram(self._program(config), self._emit)
            try:
                await self._child.keep()
            finally:
                self._child.send(signal.SIGCONT)
                await programs.stop([self._child], timeout=TIMEOUT)

    async def is_ready(self) -> bool:
        """Return whether the replica reports that it is ready."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            async with asyncio.timeout(2):
                return b" 200 " in await reader.readline()
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()

    def _program(self, config: Path) -> programs.ProgramCommand:
        options = UpOptions(
            kubeconfig=config,
            server=self._ground.access.server,
            namespace=self._ground.namespace,
            watch_namespaces=self._ground.watch_namespaces,
            gates=self._ground.gates,
            log_dir=self._ground.log_dir,
        )
        environment = os.environ | self._ground.environment
        replica = programs.ServiceProcess(
            service=self.service, name=self.name, identity=self.name, port=self.port
        )
        return programs.build_service(
            replica, self._ground.bus, environment=environment, options=options
        )


class Fleet:
    """All replicas of all services."""

    def __init__(self, ground: Ground, emit: Callable[[str], None]) -> None:
        self._ground = ground
        self._emit = emit
        self._running: defaultdict[str, list[tuple[Replica, asyncio.Task[None]]]] = defaultdict(
            list
        )
        self._started: Counter[str] = Counter()
        self._judges: dict[str, Judge] = {}
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def manned(self) -> AsyncGenerator["Fleet"]:
        """Allow replicas to be started in a block; all end with the block."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield self
            finally:
                for service in list(self._running):
                    self.scale(service, 0)

    def scale(
        self, service: str, count: int, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start replicas, with additional environment variables, or end them; the last ones go
        first.
        """
        running = self._running[service]
        ground = msgspec.structs.replace(
            self._ground, environment={**self._ground.environment, **(environment or {})}
        )
        while len(running) < count:
            replica = Replica(service, self._started[service], ground, self._emit)
            self._started[service] += 1
            replica.fault_proxy.judge = self._judges.get(service, fault_proxy.let_pass)
            assert self._group is not None
            running.append((replica, self._group.create_task(replica.run())))
        while len(running) > count:
            running.pop()[1].cancel()

    async def roll(self, service: str, environment: Mapping[str, str]) -> None:
        """Replace all replicas of a service like a Deployment: each new one is ready before an old
        one ends.
        """
        for old, task in list(self._running[service]):
            self.scale(service, len(self._running[service]) + 1, environment=environment)
            await eventually_true(
                self.of(service)[-1].is_ready,
                within=READY_SECONDS,
                what=f"{service} in place of {old.name}",
            )
            self._running[service] = [each for each in self._running[service] if each[0] is not old]
            task.cancel()
            await asyncio.wait((task,))

    def lose(self, replica: Replica) -> None:
        """Kill a replica that does not return, like a pod whose node is lost; `scale` starts
        another one in its place.
        """
        replica.send_signal(signal.SIGKILL)
        self.end(replica)

    def end(self, replica: Replica) -> None:
        """End a replica by SIGTERM, like a pod that is deleted; `scale` starts another one in its
        place.
        """
        for each in list(self._running[replica.service]):
            if each[0] is replica:
                self._running[replica.service].remove(each)
                each[1].cancel()

    def of(self, service: str) -> list[Replica]:
        """Return the replicas of a service."""
        return [replica for replica, _ in self._running[service]]

    def all(self) -> Iterator[Replica]:
        """Return all replicas."""
        return (replica for running in self._running.values() for replica, _ in running)

    def judge(self, service: str, judge: Judge | None) -> None:
        """Let a function decide what happens to a service's requests; None lets all pass."""
        self._judges[service] = judge or fault_proxy.let_pass
        for replica in self.of(service):
            replica.fault_proxy.judge = self._judges[service]

    async def ready(self) -> None:
        """Wait until all replicas are ready."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_SECONDS
        for replica in list(self.all()):
            while not await replica.is_ready():
                assert loop.time() < deadline, (
                    f"{replica.name} is not ready; see {self._ground.log_dir}"
                )
                await asyncio.sleep(0.1)


@asynccontextmanager
async def services_with_own_rights(
    control_plane: ControlPlane,
    bus: BusAccess,
    logs: Path,
    emit: Callable[[str], None],
    *,
    watched: str = "",
    gates: Mapping[str, bool] | None = None,
) -> AsyncGenerator[Fleet]:
    """Run one replica of each service with the rights of its ServiceAccount, together with the
    keeper of the streams.
    """
    kubeconfigs = {
        service: await control_plane.kubeconfig_for_service_account(NAMESPACE, service)
        for service in MODULES
    }
    ground = Ground(
        access=control_plane.access,
        bus=bus,
        work=logs,
        log_dir=logs,
        kubeconfigs=kubeconfigs,
        watch_namespaces=watched,
        gates=dict(gates or {}),
    )
    async with streams_kept(bus, logs, emit), Fleet(ground, emit).manned() as fleet:
        for service in MODULES:
            fleet.scale(service, 1)
        await fleet.ready()
        yield fleet


@asynccontextmanager
async def streams_kept(
    bus: BusAccess, logs: Path, emit: Callable[[str], None], *, observed: Observed | None = None
) -> AsyncGenerator[None]:
    """Run the keeper of the streams for the duration of a block, and export the server's metrics if
    requested.
    """
    argv = [sys.executable, "-m", "nats_admin.provision", "streams", "--watch"]
    environment = {**os.environ, "RAYBUS_NATS_URL": bus.url}
    if bus.credentials is not None:
        users = bus.credentials / "users"
        argv += ["--outside-seed", str(users / f"{programs.KEEPER_USER}-outside.seed")]
        environment |= {
            "RAYBUS_NATS_SEED_FILE": str(users / f"{programs.KEEPER_USER}.seed"),
            "RAYBUS_NATS_CA_FILE": str(bus.credentials / "ca.crt"),
        }
    if observed is not None:
        argv += ["--metrics", "--server-monitor", f"http://127.0.0.1:{observed.monitor}"]
        environment["RAYBUS_HTTP_PORT"] = str(observed.port)
    keeper = ChildProgram(
        ProgramCommand(
            name=programs.KEEPER_USER, argv=argv, environment=environment, log=logs / "keeper.log"
        ),
        emit,
    )
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(keeper.keep())
        try:
            yield
        finally:
            keeping.cancel()
            await programs.stop([keeper], timeout=2.0)
