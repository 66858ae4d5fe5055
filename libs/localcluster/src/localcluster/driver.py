"""The interface of all drivers of a local cluster, the choice of the default driver, and the record of a cluster between two commands: a JSON file in its state folder.

Rule: the record helps to use a cluster; removing one must work without it (a crash may come before it is written).

Rule: an existing cluster (`kubeconfig`) is used only when its driver is named; nobody's production becomes a demo.
"""

import shutil
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from localcluster import processes
from localcluster.errors import ClusterError
from localcluster.processes import ProcessId
from localcluster.progress import Progress
from localcluster.settings import Layout, Settings


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that `up` made or adopted."""

    name: str
    driver: str
    server: str
    kubeconfig: Path
    """Works from this machine."""
    inner_kubeconfig: Path
    """Works from inside the cluster's network; the same as `kubeconfig` where there is no such network."""
    gateway: bool = False
    processes: tuple[ProcessId, ...] = ()
    binaries: dict[str, Path] = {}


def write(layout: Layout, record: Record) -> None:
    """Keep the record; a reader sees the old one or the new one, never half of one."""
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = layout.record.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(record, enc_hook=str)))
    draft.replace(layout.record)


def read(layout: Layout) -> Record | None:
    """Return the record, or None where there is no cluster; a damaged file counts as none."""
    try:
        return msgspec.json.decode(layout.record.read_bytes(), type=Record, dec_hook=_decode)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _decode(kind: type[Path], value: str) -> Path:
    return kind(value)


class DriverName(StrEnum):
    """The drivers."""

    AUTO = "auto"
    KIND = "kind"
    K3S = "k3s"
    BUILT = "built"
    KUBECONFIG = "kubeconfig"


CONTROL_PLANE_ONLY = "control-plane"
"""The driver behind `up --control-plane-only`; it is not offered by name, for it runs no pods."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `up`."""

    layout: Layout
    settings: Settings
    kubeconfig: Path | None = None
    crds: Path | None = None
    gateway: bool = True
    gateway_api: bool = False
    """Install the CRDs of the Gateway API also without a gateway, for a later `up` that adds it."""
    images: Sequence[Path] = ()
    """Image archives that a new node imports while it starts."""
    port: int = 0
    """Where the API server is reached on this machine; 0 lets the kernel choose."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run with a cluster: its command line and its additional environment variables."""

    argv: list[str]
    environment: dict[str, str]


class Driver(Protocol):
    """A driver of a cluster."""

    async def up(self, request: Request, progress: Progress) -> Record:
        """Create the cluster, or return the running one."""
        ...

    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Remove the cluster and its leftovers, also after a failed `up`; with `purge` its image store too."""
        ...

    async def load(self, record: Record, layout: Layout, archives: Sequence[Path]) -> list[str]:
        """Load the images of docker-archive files into the node; return their tags."""
        ...

    def inside(self, record: Record, layout: Layout, argv: Sequence[str]) -> Command:
        """Return how to run a program where pods and Services can be reached."""
        ...


async def choose() -> DriverName:
    """Return the driver for `auto`: kind or K3s where a Docker engine answers, else a node built here."""
    if await _docker_answers():
        return DriverName.KIND if shutil.which("kind") is not None else DriverName.K3S
    return DriverName.BUILT


async def need_docker(name: DriverName) -> None:
    """Raise unless a Docker engine answers."""
    if not await _docker_answers():
        raise ClusterError(
            f"the driver '{name}' needs a Docker engine that answers; start Docker, or use --driver built"
        )


async def _docker_answers() -> bool:
    return (
        shutil.which("docker") is not None and (await processes.run(["docker", "info"])).code == 0
    )
