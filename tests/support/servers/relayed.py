"""A real nats-server with users and TLS, its streams with their keeper, and watcher processes that
tests start and kill.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final, Protocol

import msgspec

from common import errors
from common.bus import streams, subjects
from common.bus.nats import Bus, connect
from common.bus.state_feed import StateFeed
from common.bus.subjects import PARTITIONS
from common.clock import SystemClock
from common.settings import Settings
from nats_admin import credential_folder, event_streams, stream_keeper
from nats_admin.server_conf import ServerConfig
from nats_admin.subscribers import NamedSubscriber
from support.fakes.listener import Recorder
from support.following import follow_as_one
from support.servers.builds import THIS, Build
from support.servers.nats import NatsServer, nats_server
from support.servers.spawned_service import SpawnedService
from support.waiting import eventually, eventually_true

EVERYTHING: Final = frozenset(range(PARTITIONS))
STOP_SECONDS: Final = 15.0


class Users(Protocol):
    """One or more servers that know the users of our table."""

    def settings(self, user: str) -> Settings:
        """Return how a user connects."""
        ...


class Secured:
    """A server that knows the users of our table."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self.server = server
        self._folder = folder

    def settings(self, user: str) -> Settings:
        """Return how a user connects."""
        return Settings(
            service=user,
            nats_url=self.server.url,
            nats_ca_file=self._folder / "ca.crt",
            nats_seed_file=self._folder / "users" / f"{user}.seed",
        )


@asynccontextmanager
async def secured_nats(
    folder: Path, *, subscribers: tuple[NamedSubscriber, ...] = (), monitor: int | None = None
) -> AsyncGenerator[Secured]:
    """Run a server with generated credentials and configuration; `monitor` is its monitoring port."""
    store = str(folder / "jetstream")
    where = ServerConfig(
        folder=str(folder),
        store=store,
        host="127.0.0.1",
        monitoring_port=monitor,
        subscribers=subscribers,
    )
    credential_folder.complete_folder(folder, where, names=["127.0.0.1"], now=SystemClock().now())
    configuration = (folder / "nats-server.conf").read_text()
    with nats_server(folder, configuration=configuration, scheme="tls") as server:
        yield Secured(server, folder)


class Watcher(SpawnedService):
    """`python -m watcher` as a process that tests start and kill."""

    def __init__(
        self,
        secured: Users,
        kubeconfig: Path,
        namespace: str,
        *,
        nats_url: str | None = None,
        build: Build = THIS,
    ) -> None:
        access = secured.settings("watcher")
        if nats_url is not None:
            access = msgspec.structs.replace(access, nats_url=nats_url)
        super().__init__(
            "watcher",
            access,
            kubeconfig,
            namespace,
            build=build,
            environment={"RAYBUS_WATCH_NAMESPACES": namespace},
        )
        self.name = ""
        """Identity of the running process on the Lease."""

    def kill(self) -> None:
        """Kill the watcher, as in a crash."""
        self.end(signal.SIGKILL, within=STOP_SECONDS)

    def stop(self) -> int:
        """End the watcher gracefully; return its exit code."""
        return self.end(signal.SIGTERM, within=STOP_SECONDS)

    def start(self) -> None:
        """Start the watcher with an identity that no earlier process had."""
        self.name = f"watcher-{token_hex(4)}"
        self._environment["RAYBUS_IDENTITY"] = self.name
        super().start()


class Relayed(msgspec.Struct, frozen=True, kw_only=True):
    """NATS, the keeper of its streams, the watchers, and one reader that follows every partition."""

    nats: NatsServer
    secured: Secured
    watcher: Watcher
    reader: Recorder
    bus: Bus

    async def until_synced(self, *, within: float = 60.0) -> None:
        await eventually(lambda: self.reader.is_synced, within=within, what="the reader's load")


@asynccontextmanager
async def provisioned(folder: Path) -> AsyncGenerator[tuple[Secured, Bus]]:
    """Run NATS and the keeper of its streams, and connect as a reader."""
    async with (
        secured_nats(folder) as secured,
        connect(secured.settings("provisioner")) as keeper,
        connect(secured.settings("cluster-reconciler")) as bus,
        asyncio.TaskGroup() as group,
    ):
        keeping = group.create_task(
            stream_keeper.keep_streams(
                keeper, [streams.build_state_config(), event_streams.build_stream_config()]
            )
        )

        async def are_there() -> bool:
            try:
                for each in (subjects.STATE_STREAM, subjects.EVENTS_STREAM):
                    await keeper.stream(each)
            except (errors.NotFound, errors.Retryable):
                return False
            return True

        await eventually_true(are_there, within=30.0, every=0.05, what="both streams")
        try:
            yield secured, bus
        finally:
            keeping.cancel()


@asynccontextmanager
async def relayed(folder: Path, kubeconfig: Path, namespace: str) -> AsyncGenerator[Relayed]:
    """Run NATS, the keeper of its streams, one watcher and one reader."""
    async with provisioned(folder) as (secured, bus), asyncio.TaskGroup() as group:
        watcher = Watcher(secured, kubeconfig, namespace)
        reader = Recorder()
        following = group.create_task(
            follow_as_one(StateFeed(bus, reader="test"), EVERYTHING, reader)
        )
        try:
            watcher.start()
            yield Relayed(
                nats=secured.server, secured=secured, watcher=watcher, reader=reader, bus=bus
            )
        finally:
            watcher.kill()
            following.cancel()
