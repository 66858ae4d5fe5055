"""The options of `raybus up`, and the child processes that it runs.

Options are checked before anything starts; each error names the option and the remedy. A child that
exits is restarted with back-off. The kernel kills the children if this process dies for any reason
(prctl(2), PR_SET_PDEATHSIG, set by setpriv of util-linux). On a system without setpriv, such as
macOS, children survive a `kill -9` of this process.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from common import errors, feature_gates
from common.bus.subjects import PARTITIONS
from common.settings import LEVELS
from raybus_cli.child_processes import bind_to_parent, signal_child

MODULES: Final = {
    "watcher": "watcher",
    "cluster-reconciler": "cluster_reconciler",
    "service-reconciler": "service_reconciler",
    "traffic-manager": "traffic_manager",
    "job-reconciler": "job_reconciler",
}
"""The module of each service, for `python -m`."""
MAX_REPLICAS: Final = PARTITIONS


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The validated options."""

    kubeconfig: Path
    server: str
    """URL of the API server in the kubeconfig."""
    nats: str | None = None
    """URL of a running NATS server; None starts a new one."""
    nats_credentials: Path | None = None
    gates: dict[str, bool] = {}
    replicas: dict[str, int] = {}
    namespace: str = "default"
    watch_namespaces: str = ""
    log_dir: Path | None = None
    log_level: str = "INFO"
    data_dir: Path | None = None
    """Folder for the files of the new NATS server; None uses a temporary folder."""


def check_kubeconfig(path: Path) -> str:
    """Return the URL of the API server in a kubeconfig.

    Raise `InvalidSpec` if the file is unusable.
    """
    try:
        document: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise errors.InvalidSpec(
            f"--kubeconfig: cannot read kubeconfig {path}: {error.strerror}; "
            "name a readable file with --kubeconfig"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.InvalidSpec(f"--kubeconfig: {path} is not YAML; name another file") from error
    try:
        current = document["current-context"]
        context = next(
            entry["context"] for entry in document["contexts"] if entry["name"] == current
        )
        cluster = next(
            entry["cluster"]
            for entry in document["clusters"]
            if entry["name"] == context["cluster"]
        )
        return str(cluster["server"])
    except (KeyError, TypeError, StopIteration) as error:
        raise errors.InvalidSpec(
            f"--kubeconfig: kubeconfig {path} has no usable current-context; "
            "choose one with 'kubectl config use-context'"
        ) from error


def check_nats(url: str | None) -> str | None:
    """Return the URL of a running NATS server; raise `InvalidSpec` if it is invalid."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"nats", "tls"} or not parts.hostname:
        raise errors.InvalidSpec(f"--nats {url!r}: expected nats://HOST:PORT or tls://HOST:PORT")
    return url


def check_credentials(folder: Path | None) -> Path | None:
    """Return the absolute path of a folder with credentials for NATS.

    `python -m nats_admin.provision credentials --out` writes such a folder. Raises `InvalidSpec` if
    a file is missing.
    """
    if folder is None:
        return None
    for file in ("ca.crt", "users/watcher.seed", "users/keeper.seed"):
        if not (folder / file).is_file():
            raise errors.InvalidSpec(
                f"--nats-credentials {folder}: there is no {file}; "
                "make the folder with 'python -m nats_admin.provision credentials --out DIR'"
            )
    return folder.absolute()


def check_gates(text: str) -> dict[str, bool]:
    """Parse feature gates, such as `A=true,B=false`; raise `InvalidSpec` for an unknown gate."""
    try:
        return feature_gates.parse(text)
    except errors.InvalidSpec as problem:
        raise errors.InvalidSpec(f"--feature-gates: {problem}") from problem


def check_replicas(text: str) -> dict[str, int]:
    """Parse replica counts, such as `cluster-reconciler=2,watcher=1`.

    Raises `InvalidSpec` for an unknown service, and for a number below 1 or above `MAX_REPLICAS`.
    """
    replicas: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = (part.strip() for part in pair.partition("="))
        if name not in MODULES:
            raise errors.InvalidSpec(
                f"--replicas {pair!r}: there is no service {name!r}; name one of "
                f"{', '.join(MODULES)}"
            )
        if not count.isdecimal() or int(count) < 1:
            raise errors.InvalidSpec(f"--replicas {pair!r}: expected {name}=N with N of 1 or more")
        if int(count) > MAX_REPLICAS:
            raise errors.InvalidSpec(
                f"--replicas {pair!r}: there are {PARTITIONS} partitions to share; name at most "
                f"{MAX_REPLICAS} replicas"
            )
        replicas[name] = int(count)
    return replicas


def check_folder(option: str, folder: Path | None) -> Path | None:
    """Create the folder for logs or data that an option names, and return its absolute path.

    Raises `InvalidSpec` if it cannot be created.
    """
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise errors.InvalidSpec(
            f"{option} {folder}: {problem.strerror}; name a folder that you may write to"
        ) from problem
    return folder.absolute()


def check_level(text: str) -> str:
    """Return the log level in upper case; raise `InvalidSpec` for an unknown level."""
    if text.upper() not in LEVELS:
        raise errors.InvalidSpec(f"--log-level {text!r}: expected one of {', '.join(LEVELS)}")
    return text.upper()


FIRST_WAIT: Final = 0.2
MAX_WAIT: Final = 10.0
STABLE_AFTER_SECONDS: Final = 30.0
"""Seconds after which a child counts as started; its restart back-off is then reset."""
MISCONFIGURED: Final = 2
"""Exit code of a service with invalid settings; restarting it would not help."""


class ProgramCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The command line and the environment of a child."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path | None = None
    """Log file; None for this process's standard error."""


class ChildProgram:
    """A program that is restarted whenever it exits."""

    def __init__(self, program: ProgramCommand, report: Callable[[str], None]) -> None:
        self.program = program
        self._report = report
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id of the present or last process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def keep(self) -> None:
        """Run this program until cancelled; restart it with back-off when it exits.

        Raises `InvalidSpec` if the program rejects its settings, or cannot be started.
        """
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            started = loop.time()
            code = await (await self._start()).wait()
            if code == MISCONFIGURED:
                raise errors.InvalidSpec(
                    f"{self.program.name} rejects its settings; see {self._describe_log()}"
                )
            failures = 0 if loop.time() - started > STABLE_AFTER_SECONDS else failures + 1
            wait = min(MAX_WAIT, FIRST_WAIT * 2.0 ** min(failures, 10))
            self._report(
                f"{self.program.name} {_describe_exit(code)}; it restarts in {wait:.1f} s "
                f"({self._describe_log()})"
            )
            await asyncio.sleep(wait)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it exists."""
        if self._process is not None:
            signal_child(self._process, number)

    async def wait_until_ended(self) -> None:
        """Wait until the process has exited."""
        if self._process is not None:
            await self._process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        with contextlib.ExitStack() as stack:
            log = (
                sys.stderr
                if self.program.log is None
                else stack.enter_context(self.program.log.open("ab"))
            )
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *bind_to_parent(self.program.argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(self.program.environment),
                    # Ctrl-C must reach only this process, which stops the children in order.
                    start_new_session=True,
                )
            except OSError as problem:
                raise errors.InvalidSpec(
                    f"cannot start {self.program.argv[0]}: {problem.strerror}"
                ) from problem
        return self._process

    def _describe_log(self) -> str:
        return "the log above" if self.program.log is None else str(self.program.log)


async def stop(children: Sequence[ChildProgram], *, timeout: float) -> None:
    """Stop all children at once.

    They get SIGTERM first, and SIGKILL if they still run after `timeout` seconds.
    """
    for child in children:
        child.send(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            for child in children:
                await child.wait_until_ended()
    for child in children:
        child.send(signal.SIGKILL)
    for child in children:
        await child.wait_until_ended()


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


KEEPER_USER: Final = "keeper"
"""NATS user that creates missing streams."""
NATS: Final = "nats"


class BusAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Address and credentials of NATS for the children."""

    url: str
    credentials: Path | None = None
    """Folder written by `python -m nats_admin.provision credentials --out`; None for a server
    without users.
    """


NATS_GO: Final = {"GOGC": "20"}
"""Makes Go collect garbage when the heap has grown by 20 % instead of 100 %, to limit the memory of
NATS.

The container images set the same value.
"""
MALLOC: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_MMAP_THRESHOLD_": "65536",
}
"""Makes glibc return the memory of large messages and lists to the system. With these settings, all
processes together grow 2 KiB less for each pod.
"""


def build_nats_server(
    binary: Path, folder: Path, *, environment: Mapping[str, str], log_dir: Path | None
) -> ProgramCommand:
    """Return the command of a NATS server that reads its configuration from `folder`."""
    return ProgramCommand(
        name=NATS,
        argv=[str(binary), "--config", str(folder / "nats-server.conf")],
        environment=NATS_GO | dict(environment),
        log=_get_log_path(log_dir, NATS),
    )


class ServiceProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service."""

    service: str
    name: str
    """Name of the process and its log. With one replica, this is the service's name."""
    identity: str
    """Identity of the replica in its Lease; it stays the same when the process is restarted."""
    port: int


def list_replicas(options: UpOptions, ports: Sequence[int], *, run: str) -> list[ServiceProcess]:
    """Return all requested replicas, each with one of the free `ports`.

    `run` is a text that distinguishes their Lease identities from those of other runs of `raybus
    up`.
    """
    wanted = {name: options.replicas.get(name, 1) for name in MODULES}
    names = [
        (service, service if count == 1 else f"{service}-{number}")
        for service, count in wanted.items()
        for number in range(1, count + 1)
    ]
    return [
        ServiceProcess(service=service, name=name, identity=f"{run}-{name}", port=port)
        for (service, name), port in zip(names, ports, strict=True)
    ]


def build_service(
    replica: ServiceProcess, bus: BusAccess, *, environment: Mapping[str, str], options: UpOptions
) -> ProgramCommand:
    """Return the command of one replica of a service."""
    settings = {
        "RAYBUS_IDENTITY": replica.identity,
        "RAYBUS_KUBECONFIG": str(options.kubeconfig),
        "RAYBUS_HTTP_PORT": str(replica.port),
        "RAYBUS_NAMESPACE": options.namespace,
        "RAYBUS_WATCH_NAMESPACES": options.watch_namespaces,
        "RAYBUS_FEATURE_GATES": feature_gates.spell(options.gates),
        "RAYBUS_LOG_LEVEL": options.log_level,
        # This process is outside the cluster's network, so pods are reached through the API server.
        "RAYBUS_USE_KUBERNETES_PROXY": "true",
    }
    return ProgramCommand(
        name=replica.name,
        argv=[sys.executable, "-m", MODULES[replica.service]],
        environment=MALLOC
        | _inherit_environment(environment)
        | _build_bus_variables(bus, replica.service)
        | settings,
        log=_get_log_path(options.log_dir, replica.name),
    )


def _inherit_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment without the variables that `raybus up` sets.

    Variables of KubeRay's operator are kept, because the services read some of them.
    """
    decided = {
        "RAYBUS_NATS_URL",
        "RAYBUS_NATS_SEED_FILE",
        "RAYBUS_NATS_CA_FILE",
        "RAYBUS_KUBECONFIG",
        "RAYBUS_HTTP_PORT",
        "RAYBUS_HTTP_PORT_FILE",
        "RAYBUS_NAMESPACE",
        "RAYBUS_IDENTITY",
        "RAYBUS_WATCH_NAMESPACES",
        "RAYBUS_FEATURE_GATES",
        "RAYBUS_LOG_LEVEL",
        "RAYBUS_USE_KUBERNETES_PROXY",
    }
    return {name: value for name, value in environment.items() if name not in decided}


def _build_bus_variables(bus: BusAccess, user: str) -> dict[str, str]:
    settings = {"RAYBUS_NATS_URL": bus.url}
    if bus.credentials is not None:
        settings["RAYBUS_NATS_SEED_FILE"] = str(bus.credentials / "users" / f"{user}.seed")
        settings["RAYBUS_NATS_CA_FILE"] = str(bus.credentials / "ca.crt")
    return settings


def _get_log_path(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / f"{name}.log"
