"""The interface of the drivers, the choice of the default driver, and the record of a cluster.

The record is a JSON file in the cluster's state folder. Commands find the cluster by its record,
but the removal must work without the record, because a crash may occur before it is written. An
existing cluster is used only if the user names the driver `kubeconfig`, so that a production
cluster is never used by accident.
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
from localcluster.settings import Layout, LocalSettings


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a cluster that `up` created or adopted."""

    name: str
    driver: str
    server: str
    kubeconfig: Path
    """Kubeconfig for use on this machine."""
    inner_kubeconfig: Path
    """Kubeconfig for use inside the cluster's network; equal to `kubeconfig` if there is no such
    network.
    """
    gateway: bool = False
    processes: tuple[ProcessId, ...] = ()
    binaries: dict[str, Path] = {}


def write(layout: Layout, record: ClusterRecord) -> None:
    """Write the record atomically: a reader sees the old or the new record."""
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = layout.record.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(record, enc_hook=str)))
    draft.replace(layout.record)


def read(layout: Layout) -> ClusterRecord | None:
    """Return the record of a cluster; None if there is no cluster or the file is damaged."""
    try:
        return msgspec.json.decode(layout.record.read_bytes(), type=ClusterRecord, dec_hook=_decode)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _decode(kind: type[Path], value: str) -> Path:
    return kind(value)


class DriverName(StrEnum):
    """The drivers that a user can name with `--driver`."""

    AUTO = "auto"
    KIND = "kind"
    BUILT = "built"
    KUBECONFIG = "kubeconfig"


CONTROL_PLANE_ONLY = "control-plane"
"""Name of the driver of `up --control-plane-only`.

`DriverName` lacks it, because users cannot name a driver that runs no pods.
"""


class ClusterRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `up` for a driver."""

    layout: Layout
    settings: LocalSettings
    kubeconfig: Path | None = None
    crds: Path | None = None
    gateway: bool = True
    gateway_api: bool = False
    """Whether to install the CRDs of the Gateway API without a gateway.

    A later `up` can then add a gateway.
    """
    images: Sequence[Path] = ()
    """Image archives that a new node imports while it starts."""
    port: int = 0
    """Port of the API server on this machine; 0 takes a free port."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that accesses a cluster, and additional environment variables for it."""

    argv: list[str]
    environment: dict[str, str]


class Driver(Protocol):
    """A way to run a local cluster. The methods raise `ClusterError` if they fail."""

    async def up(self, request: ClusterRequest, progress: Progress) -> ClusterRecord:
        """Create the cluster, or return the running one."""
        ...

    async def down(self, layout: Layout, progress: Progress, *, purge: bool) -> None:
        """Remove the cluster and its leftovers, also after a failed `up`.

        With `purge`, also remove its store of images.
        """
        ...

    async def load(
        self, record: ClusterRecord, layout: Layout, archives: Sequence[Path]
    ) -> list[str]:
        """Load the images of archives into the node; return their tags."""
        ...

    def inside(self, record: ClusterRecord, layout: Layout, argv: Sequence[str]) -> Command:
        """Return the command that runs `argv` where pods and Services can be reached."""
        ...


async def choose() -> DriverName:
    """Return the driver for `auto`: kind if it is installed and Docker answers, else `built`."""
    has_kind = shutil.which("kind") is not None and await _docker_answers()
    return DriverName.KIND if has_kind else DriverName.BUILT


async def need_docker(name: DriverName) -> None:
    """Raise `ClusterError` unless a Docker engine answers."""
    if not await _docker_answers():
        raise ClusterError(
            f"the driver '{name}' needs a Docker engine that answers; start Docker, or use "
            "--driver built"
        )


async def _docker_answers() -> bool:
    return (
        shutil.which("docker") is not None and (await processes.run(["docker", "info"])).code == 0
    )
