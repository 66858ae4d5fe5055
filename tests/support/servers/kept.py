"""Real nats-servers, each with the keeper that runs beside it in a pod: keys and certificates come
from ConfigMaps of a real API server.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from common.bus import nkeys
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.settings import Settings
from localcluster.control_plane import ControlPlane
from nats_admin import server_conf
from nats_admin.keeper import Keeper, ServerPaths
from nats_admin.reload import NeighborServer
from nats_admin.server_conf import ServerCluster
from raybus_cli import child_processes
from support.manifests import NAMESPACE
from support.servers.nats import binary
from support.servers.process import Process
from support.waiting import eventually

STOP_SECONDS: Final = 10.0


class KeptServer(Process):
    """A server whose files a keeper writes; the keeper runs in this process, as the ServiceAccount
    `nats`.
    """

    def __init__(self, kube: KubeClient, place: ServerPaths) -> None:
        super().__init__()
        self.place = place
        self._kube = kube
        self.keeper = self._keeper()

    def _keeper(self) -> Keeper:
        """Return a keeper with a key that no client has, because a server without users would admit
        every client.
        """
        own = {"keeper": nkeys.derive_public_key(nkeys.new_seed())}
        return Keeper(self._kube, self.place, SystemClock(), own)

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.place.server.port}"

    @property
    def configuration(self) -> str:
        return (self.place.beside.folder / "nats-server.conf").read_text()

    async def start(self) -> None:
        """Start like a pod: the init container first."""
        await self._keeper().write_once()
        log = (self.place.volume / "nats-server.log").open("ab")
        with log:
            self.spawn(
                [binary(), "-c", str(self.place.beside.folder / "nats-server.conf")], out=log
            )

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        self.end(signal.SIGKILL, within=STOP_SECONDS)

    def lose_files(self) -> None:
        """Delete the files in the memory of the pod, so that the server starts like a new pod."""
        for path in self.place.beside.folder.iterdir():
            path.unlink()


def _place(
    folder: Path, name: str, client: int, monitor: int, cluster: ServerCluster | None
) -> ServerPaths:
    etc, volume = folder / name / "etc", folder / name / "data"
    for each in (etc, volume):
        each.mkdir(parents=True)
    server = server_conf.ServerConfig(
        folder=str(etc),
        store=str(volume / "jetstream"),
        host="127.0.0.1",
        port=client,
        monitoring_port=monitor,
        name=f'"{name}"',
        pid_file=str(folder / name / "nats.pid"),
        cluster=cluster,
    )
    return ServerPaths(
        beside=NeighborServer(
            folder=etc, pid_file=folder / name / "nats.pid", monitor=f"http://127.0.0.1:{monitor}"
        ),
        volume=volume,
        given_folder=folder / name / "given",
        namespace=NAMESPACE,
        entry=name,
        names=["localhost", "127.0.0.1"],
        server=server,
    )


@asynccontextmanager
async def kept_servers(
    control_plane: ControlPlane, folder: Path, *names: str
) -> AsyncGenerator[list[KeptServer]]:
    """Run servers with their keepers; several servers form a cluster."""
    kubeconfig = await control_plane.kubeconfig_for_service_account(NAMESPACE, "nats")
    kube = await KubeClient.connect(kubeconfig=kubeconfig, user_agent="raybus-keeper")
    clients, monitors, routes = (child_processes.find_free_ports(len(names)) for _ in range(3))
    servers: list[KeptServer] = []
    for name, client, monitor, route in zip(names, clients, monitors, routes, strict=True):
        others = tuple(f"127.0.0.1:{port}" for port in routes)
        cluster = ServerCluster(routes=others, port=route) if len(names) > 1 else None
        servers.append(KeptServer(kube, _place(folder, name, client, monitor, cluster)))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(kube.close)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        keeping: list[asyncio.Task[None]] = []
        try:
            for server in servers:
                await server.start()
                keeping.append(group.create_task(server.keeper.run()))
            yield servers
        finally:
            for task in keeping:
                task.cancel()
            for server in servers:
                server.kill()


async def client_of(
    control_plane: ControlPlane, servers: list[KeptServer], user: str, pod: str
) -> Settings:
    """Return the connection settings of a pod of a service."""
    kubeconfig = await control_plane.kubeconfig_for_service_account(NAMESPACE, user)
    return Settings(
        service=user,
        nats_url=",".join(server.url for server in servers),
        nats_register_key=True,
        kubeconfig=kubeconfig,
        namespace=NAMESPACE,
        identity=pod,
    )


async def until_configured(server: KeptServer, text: str, *, present: bool = True) -> None:
    """Wait until a server's configuration contains a text, or no longer contains it."""
    await eventually(
        lambda: (text in server.configuration) is present,
        within=30.0,
        what=f"{text[:20]} in the configuration",
    )


class Map(msgspec.Struct, frozen=True):
    """The data of a ConfigMap."""

    data: dict[str, str] = {}
