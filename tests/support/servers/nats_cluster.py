"""Three real nats-servers that share their streams, with users and TLS, as the production overlay runs them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from common import errors
from common.bus import nkeys, streams
from common.bus.nats import Bus, connect
from common.clock import SystemClock
from common.settings import Settings
from nats_admin import credential_folder, event_streams, permissions, server_conf, stream_keeper
from nats_admin.server_conf import ServerCluster, ServerConfig
from raybus_cli import child_processes
from support.servers.nats import NatsServer
from support.waiting import eventually_true

SERVERS: Final = 3


class _Replica(msgspec.Struct, frozen=True):
    current: bool = False


class _Placed(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[_Replica] | None = None


class _Info(msgspec.Struct, frozen=True):
    cluster: _Placed


class NatsCluster:
    """Servers that a test can stop one by one."""

    def __init__(self, servers: list[NatsServer], monitors: list[int], folder: Path) -> None:
        self.servers = servers
        self.monitors = monitors
        """Monitoring port of each server."""
        self._folder = folder

    def settings(self, user: str) -> Settings:
        """Return the settings with which a user connects to any running server."""
        return Settings(
            service=user,
            nats_url=",".join(server.url for server in self.servers),
            nats_ca_file=self._folder / "ca.crt",
            nats_seed_file=self._folder / "users" / f"{user}.seed",
        )

    async def leader(self, bus: Bus, stream: str) -> NatsServer | None:
        """Return the server that leads a stream; None during an election."""
        info = await bus.api(f"STREAM.INFO.{stream}", None, _Info)
        name = info.cluster.leader
        return self.servers[int(name.rpartition("-")[2])] if name else None

    async def until_whole(self, bus: Bus, stream: str) -> None:
        """Wait until every server holds the whole stream."""

        async def is_whole() -> bool:
            try:
                info = await bus.api(f"STREAM.INFO.{stream}", None, _Info)
            except errors.RaybusError:
                return False
            others = info.cluster.replicas or []
            return len(others) == SERVERS - 1 and all(each.current for each in others)

        await eventually_true(is_whole, every=0.1, what=f"{stream} on every server")


@asynccontextmanager
async def nats_cluster(folder: Path) -> AsyncGenerator[NatsCluster]:
    """Run three servers and create the streams with three replicas each, for the duration of a
    block.
    """
    now = SystemClock().now()
    numbers, monitors = (
        child_processes.find_free_ports(SERVERS),
        child_processes.find_free_ports(SERVERS),
    )
    routes = tuple(f"127.0.0.1:{port}" for port in numbers)
    common = ServerConfig(folder=str(folder), store=str(folder), monitoring_port=None)
    credential_folder.complete_folder(folder, common, names=["127.0.0.1"], now=now)
    keys = {
        user.name: [nkeys.derive_public_key((folder / "users" / f"{user.name}.seed").read_text())]
        for user in permissions.USERS
    }
    servers: list[NatsServer] = []
    try:
        for number, (port, monitor) in enumerate(zip(numbers, monitors, strict=True)):
            own = folder / f"nats-{number}"
            where = ServerConfig(
                folder=str(folder),
                store=str(own / "jetstream"),
                host="127.0.0.1",
                monitoring_port=monitor,
                name=f'"nats-{number}"',
                cluster=ServerCluster(routes=routes, port=port),
            )
            own.mkdir()
            servers.append(
                NatsServer(own, configuration=server_conf.render(where, keys), scheme="tls")
            )
            await asyncio.to_thread(servers[-1].start)
        cluster = NatsCluster(servers, monitors, folder)
        await _make_streams(cluster)
        yield cluster
    finally:
        for server in servers:
            server.kill()


async def _make_streams(cluster: NatsCluster) -> None:
    wanted = [
        streams.build_state_config(replicas=SERVERS),
        event_streams.build_stream_config(replicas=SERVERS),
    ]
    async with connect(cluster.settings("provisioner")) as bus:

        async def made() -> bool:
            await bus.session()
            try:
                return await stream_keeper.ensure_streams(bus, wanted) == []
            except errors.RaybusError:
                return False

        await eventually_true(made, what="the streams on three servers")
