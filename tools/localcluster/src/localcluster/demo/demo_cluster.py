"""Provides images, Envoy Gateway, and a pod that sends load, for the cluster of the demo.

Everything is set up by commands that a user could type. The command that adds the gateway runs at
the lowest priority, so that it uses only processor time that the demo does not need.
"""

import asyncio
import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import yaml

from common import errors
from localcluster import binaries
from localcluster.driver import DriverName, choose
from localcluster.errors import ClusterError
from localcluster.images import builder
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from raybus_cli import child_processes

RAYBUS_IMAGES = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
    "nats",
)
IMAGES = (*RAYBUS_IMAGES, "ray")


class DemoCluster(msgspec.Struct, frozen=True, rename="camel"):
    """The cluster, as `raybus cluster up -o json` prints it."""

    name: str
    driver: str
    kubeconfig: Path


class GatewayTiming(StrEnum):
    """When the demo's cluster gets a gateway. Each value is an option of `raybus cluster up`."""

    NONE = "--no-gateway"
    NOW = "--gateway"
    LATER = "--gateway-api"
    """Install only the CRDs of the Gateway API.

    The gateway is added to the running cluster later.
    """


def decide_gateway(*, in_steps: bool, is_kept: bool, wanted: bool) -> GatewayTiming:
    """Decide when the demo's cluster gets a gateway.

    `in_steps` is true for an upgrade in steps, `is_kept` if the cluster remains after the demo, and
    `wanted` is false if the user asks for no gateway. A cluster that is kept also gets a gateway,
    so that the user can try an upgrade in steps later. The model's first answer never waits for the
    gateway. Raises `InvalidSpec` for an upgrade in steps without a gateway.
    """
    if in_steps and not wanted:
        raise errors.InvalidSpec(
            "--no-gateway excludes --strategy incremental, which moves the traffic by a Gateway"
        )
    return GatewayTiming.LATER if wanted and (in_steps or is_kept) else GatewayTiming.NONE


def start_cluster(
    driver: str,
    name: str | None,
    kubeconfig: Path | None,
    *,
    gateway: GatewayTiming = GatewayTiming.NONE,
    images: Sequence[Path] = (),
) -> DemoCluster:
    """Start the cluster, or use the running one.

    A new node loads the images while it starts. Raises `Rejected` if the command fails.
    """
    options = [gateway, *([GatewayTiming.NONE] if gateway is GatewayTiming.LATER else ())]
    loads = [option for image in images for option in ("--load", str(image))]
    command = [
        "cluster",
        "up",
        "--driver",
        driver,
        *options,
        *loads,
        *_build_name_option(name),
        "-o",
        "json",
    ]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    return msgspec.json.decode(_run_raybus(command), type=DemoCluster, dec_hook=_parse_path)


async def prepare(
    driver: str, *, gateway: bool = False, more_images: Sequence[str] = ()
) -> list[Path]:
    """Build the node's programs and the images, unless they are cached; return the archives.

    Programs and images are built concurrently: programs keep the processors busy, images mostly the
    network and the disk. Raises `Rejected` if a build fails.
    """
    progress = Progress.to_stderr()
    programs = [*binaries.NODE, *(binaries.GATEWAY if gateway else ())]
    wanted = (*IMAGES, *more_images)
    try:
        async with asyncio.TaskGroup() as group:
            if await _is_built(driver):
                group.create_task(
                    binaries.obtain(programs, LocalSettings.from_environment(), progress)
                )
            images = group.create_task(
                asyncio.to_thread(builder.ensure, (*wanted, "pause"), progress=progress)
            )
    except BaseExceptionGroup as met:
        problems = met.subgroup(ClusterError)
        if problems is None:
            raise
        raise errors.Rejected(str(problems.exceptions[0])) from met
    return [archive.path for target, archive in images.result().items() if target in wanted]


async def _is_built(driver: str) -> bool:
    if driver == DriverName.AUTO:
        return await choose() is DriverName.BUILT
    return driver == DriverName.BUILT


def load_images(archives: Sequence[Path], name: str | None) -> None:
    """Load image archives into the node of a cluster."""
    _run_raybus(["cluster", "load", *_build_name_option(name), *map(str, archives)])


def remove_cluster(name: str | None) -> None:
    """Remove a cluster and its node."""
    _run_raybus(["cluster", "down", *_build_name_option(name)])


def _build_name_option(name: str | None) -> list[str]:
    return [] if name is None else ["--name", name]


def _run_raybus(command: Sequence[str]) -> bytes:
    """Run a raybus command and return its standard output.

    Its progress goes to standard error. Raises `Rejected` if the command fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "raybus_cli.main", *command], stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise errors.Rejected(
            f"raybus {' '.join(command[:2])} failed with exit code {done.returncode}"
        )
    return done.stdout


def _parse_path(kind: type[Path], value: str) -> Path:
    return kind(value)


END_SECONDS: Final = 20.0
"""Seconds that an interrupted command may take to exit."""
_TAIL: Final = 2000
"""Number of bytes read from the end of the command's output."""
_MARKS: Final = " …✓✗"


class LateGateway:
    """A running command that adds a gateway to the cluster, and the command's output."""

    def __init__(self, process: asyncio.subprocess.Process, output: IO[bytes]) -> None:
        self._process = process
        self._output = output

    @property
    def activity(self) -> str:
        """The last line of progress that the command has printed."""
        end = self._output.seek(0, 2)
        self._output.seek(max(0, end - _TAIL))
        lines = self._output.read().decode(errors="replace").split("\n")
        return next(
            (shown for line in reversed(lines) if (shown := line.strip(_MARKS))), "starting"
        )

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended, with or without success."""
        return self._process.returncode is not None

    def expect_success(self) -> None:
        """Raise `Rejected` with the command's last line of output if the command failed."""
        if self._process.returncode:
            raise errors.Rejected(f"adding Envoy Gateway to the cluster failed: {self.activity}")

    async def end(self, *, within: float = END_SECONDS) -> None:
        """Interrupt the command if it still runs; kill it after `within` seconds.

        Finished builds stay in the cache.
        """
        child_processes.signal_child(self._process, signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._process.wait()
        await child_processes.end_child(self._process)


@asynccontextmanager
async def add_gateway(command: Sequence[str]) -> AsyncGenerator[LateGateway]:
    """Run a command that adds a gateway, at the lowest priority, during the `with` block."""
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *("nice", "-n", "19", *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        late = LateGateway(process, output)
        try:
            yield late
        finally:
            await late.end()


def build_gateway_command(driver: str, name: str) -> list[str]:
    """Return the command that adds a gateway to the running cluster `name`."""
    raybus = [sys.executable, "-m", "raybus_cli.main"]
    return [*raybus, "cluster", "up", "--gateway", "--driver", driver, "--name", name]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the load, which the pod of `deploy/demo/load` sends."""

    url: str = "http://greeter-serve-svc:8000/"
    rate: float = 40.0
    """Number of short requests per second."""
    think: str = "8"
    """Seconds that a slow request takes: `8`, or a range such as `5-20`."""
    think_every: float = 2.0
    """Seconds between slow requests."""
    retry: str = "standard"
    """`standard`: retry a failed request once on a new connection.

    `none`: send no request twice.
    """
    seconds: float = 600.0
    """Maximum duration of the load in seconds."""


def set_load(text: str, load: Load) -> str:
    """Return the manifest `text` (from `kubectl kustomize`) with the load's options in the pod."""
    documents: list[dict[str, Any]] = [
        document for document in yaml.safe_load_all(text) if document
    ]
    for document in documents:
        if document["kind"] == "Pod":
            given = msgspec.structs.asdict(load)
            arguments = [
                argument
                for name, value in given.items()
                for argument in (f"--{name.replace('_', '-')}", str(value))
            ]
            document["spec"]["containers"][0]["args"] = arguments
    return yaml.safe_dump_all(documents, sort_keys=False)
