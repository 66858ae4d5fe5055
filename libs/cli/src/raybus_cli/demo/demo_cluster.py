"""What the demo runs on, by the commands that a user would type: the cluster with its images, Envoy Gateway, and the pod that sends the load.

It is the command that a user would type, at the lowest priority: it gets only the processor time that the demo leaves.
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
from localcluster import binaries, processes
from localcluster.driver import DriverName, choose
from localcluster.errors import ClusterError
from localcluster.images import builder
from localcluster.progress import Progress
from localcluster.settings import Settings

RAYBUS_IMAGES = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager", "nats")
IMAGES = (*RAYBUS_IMAGES, "ray")


class Cluster(msgspec.Struct, frozen=True, rename="camel"):
    """The result of `raybus cluster up -o json`."""

    name: str
    driver: str
    kubeconfig: Path


class Gateway(StrEnum):
    """The gateway of a cluster that the demo starts; the value is the option of `raybus cluster up`."""

    NONE = "--no-gateway"
    NOW = "--gateway"
    LATER = "--gateway-api"
    """Only the CRDs, for a gateway that is added to the running cluster."""


def gateway_for(*, in_steps: bool, is_kept: bool, wanted: bool) -> Gateway:
    """Return when a demo's cluster gets a gateway: one that is kept has it too, for upgrades in steps that the user tries next.

    The first answer never waits for it. Raises `InvalidSpec` for an upgrade in steps without one.
    """
    if in_steps and not wanted:
        raise errors.InvalidSpec(
            "--no-gateway excludes --strategy incremental, which moves the traffic by a Gateway"
        )
    return Gateway.LATER if wanted and (in_steps or is_kept) else Gateway.NONE


def start_cluster(
    driver: str,
    name: str | None,
    kubeconfig: Path | None,
    *,
    gateway: Gateway = Gateway.NONE,
    images: Sequence[Path] = (),
) -> Cluster:
    """Create the cluster, or use the running one; a new node loads the images while it starts."""
    options = [gateway, *([Gateway.NONE] if gateway is Gateway.LATER else ())]
    loads = [option for image in images for option in ("--load", str(image))]
    command = ["cluster", "up", "--driver", driver, *options, *loads, *_named(name), "-o", "json"]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    return msgspec.json.decode(_raybus(command), type=Cluster, dec_hook=_path)


async def prepare(
    driver: str, *, gateway: bool = False, more_images: Sequence[str] = ()
) -> list[Path]:
    """Build, at the same time, the node's programs and the images that are not in the cache; return the images.

    Programs keep the processors busy, images mostly the network and the disk.
    """
    progress = Progress.to_stderr()
    programs = [*binaries.NODE, *(binaries.GATEWAY if gateway else ())]
    wanted = (*IMAGES, *more_images)
    try:
        async with asyncio.TaskGroup() as group:
            if await _builds_programs(driver):
                group.create_task(binaries.obtain(programs, Settings.from_environment(), progress))
            images = group.create_task(
                asyncio.to_thread(builder.ensure, (*wanted, "pause"), progress=progress)
            )
    except BaseExceptionGroup as met:
        problems = met.subgroup(ClusterError)
        if problems is None:
            raise
        raise errors.Rejected(str(problems.exceptions[0])) from met
    return [archive.path for target, archive in images.result().items() if target in wanted]


async def _builds_programs(driver: str) -> bool:
    if driver == DriverName.AUTO:
        return await choose() is DriverName.BUILT
    return driver == DriverName.BUILT


def load_images(archives: Sequence[Path], name: str | None) -> None:
    """Make the images known to the cluster's node."""
    _raybus(["cluster", "load", *_named(name), *map(str, archives)])


def remove_cluster(name: str | None) -> None:
    """Remove the cluster."""
    _raybus(["cluster", "down", *_named(name)])


def _named(name: str | None) -> list[str]:
    return [] if name is None else ["--name", name]


def _raybus(command: Sequence[str]) -> bytes:
    """Run one of our own commands; its progress goes to the user, its result is returned."""
    done = subprocess.run(
        [sys.executable, "-m", "raybus_cli.main", *command], stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise errors.Rejected(
            f"raybus {' '.join(command[:2])} failed with exit code {done.returncode}"
        )
    return done.stdout


def _path(kind: type[Path], value: str) -> Path:
    return kind(value)


END_SECONDS: Final = 20.0
"""The longest wait for the orderly end of an interrupted build."""
_TAIL: Final = 2000
"""Bytes of the output that are read."""
_MARKS: Final = " …✓✗"


class LateGateway:
    """A running command that adds a gateway, and its output."""

    def __init__(self, process: asyncio.subprocess.Process, output: IO[bytes]) -> None:
        self._process = process
        self._output = output

    @property
    def activity(self) -> str:
        """The last line of its progress."""
        end = self._output.seek(0, 2)
        self._output.seek(max(0, end - _TAIL))
        lines = self._output.read().decode(errors="replace").split("\n")
        return next(
            (shown for line in reversed(lines) if (shown := line.strip(_MARKS))), "starting"
        )

    @property
    def has_ended(self) -> bool:
        """Whether the gateway is there, or cannot be."""
        return self._process.returncode is not None

    def expect_success(self) -> None:
        """Raise with the end of its output if it failed."""
        if self._process.returncode:
            raise errors.Rejected(f"adding Envoy Gateway to the cluster failed: {self.activity}")

    async def end(self, *, within: float = END_SECONDS) -> None:
        """Interrupt it if it still runs, and kill it if it goes on; what it has built stays in the cache."""
        processes.signal_child(self._process, signal.SIGINT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._process.wait()
        await processes.end_child(self._process)


@asynccontextmanager
async def adding_gateway(command: Sequence[str]) -> AsyncGenerator[LateGateway]:
    """Run the command while the block runs, at the lowest priority."""
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


def gateway_command(driver: str, name: str) -> list[str]:
    """Return what a user types to add a gateway to a running cluster."""
    raybus = [sys.executable, "-m", "raybus_cli.main"]
    return [*raybus, "cluster", "up", "--gateway", "--driver", driver, "--name", name]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod of `deploy/demo/load` is asked to send."""

    url: str = "http://greeter-serve-svc:8000/"
    rate: float = 40.0
    """Short requests a second."""
    think: str = "8"
    """Seconds that a slow request takes: `8`, or a range such as `5-20`."""
    think_every: float = 2.0
    """Seconds between slow requests."""
    retry: str = "standard"
    """`none`: nothing is ever sent a second time."""
    seconds: float = 600.0
    """The longest run."""


def manifest(text: str, load: Load) -> str:
    """Return the manifest, as `kubectl kustomize` printed it, with the pod's arguments set."""
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text) if each]
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
