"""Causes in a separate NATS server: it fills up, a client does not read, or one of three hangs."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from common.bus import subjects
from common.bus.nats import Bus, connect
from common.bus.session import parse_status
from common.settings import Settings
from integration.monitoring import ground
from integration.monitoring.cause import AlarmSetup, Cause
from raybus_cli.up.programs import BusAccess
from support.servers.fleet import Observed, streams_kept
from support.servers.nats import NatsServer, nats_server
from support.servers.nats_cluster import nats_cluster
from support.waiting import eventually_true

FILLING: Final = "RaybusNatsStorageFilling"
SLOW: Final = "RaybusNatsSlowConsumer"
LAGS: Final = "RaybusNatsReplicaLags"
MEGABYTE: Final = 1_000_000
LIMIT: Final = 64 * 1024 * 1024
HELD: Final = 58
"""Megabytes that are stored on the server."""
UNREAD: Final = 100
"""Megabytes that a client does not read.

This is more than the 64 MiB that the server keeps for a client, plus the sockets' buffers."""
LAGGING: Final = 1200
"""Number of messages by which a replica lags; the alert's limit is 1,000."""
SUBJECT: Final = "ray.state.v1.p00.filled"


class _Purged(msgspec.Struct, frozen=True):
    purged: int


@asynccontextmanager
async def _scraped(setup: AlarmSetup, observed: Observed, bus: BusAccess) -> AsyncGenerator[None]:
    """Have Prometheus scrape the keeper of a server for the length of a block."""
    found = setup.ground
    logs = found.logs / observed.name
    logs.mkdir(exist_ok=True)
    async with streams_kept(bus, logs, found.emit, observed=observed):
        found.more.append(observed)
        try:
            await ground.until(found.server, f'raybus_nats_up{{pod="{observed.name}"}} == 1')
            yield
        finally:
            found.more.remove(observed)
            await asyncio.sleep(2 * ground.FOLLOWED_SECONDS)


@asynccontextmanager
async def _one_server(setup: AlarmSetup, name: str) -> AsyncGenerator[tuple[NatsServer, Bus]]:
    """Run one server without users that may store `LIMIT`, and wait for its state stream."""
    observed, folder = Observed.on_free_ports(name), setup.ground.work / name
    store = f'store_dir: "{folder / "jetstream"}", max_file_store: {LIMIT}'
    text = f'server_name: "{name}"\nmax_payload: 2MB\nhttp: "127.0.0.1:{observed.monitor}"\njetstream {{ {store} }}\n'
    with nats_server(folder, configuration=text) as server:
        async with (
            _scraped(setup, observed, BusAccess(url=server.url)),
            connect(Settings(service="watcher", nats_url=server.url)) as bus,
        ):
            await bus.session()
            await ground.until(setup.ground.server, f'raybus_nats_stream_bytes{{pod="{name}"}}')
            yield server, bus


async def _silent(setup: AlarmSetup, alert: str) -> None:
    """Wait for the end of an alert while its series still exist."""

    async def is_silent() -> bool:
        return alert not in await setup.ground.server.firing()

    await eventually_true(is_silent, within=ground.TIMEOUT, what=f"the end of {alert}")


@asynccontextmanager
async def _filled(setup: AlarmSetup) -> AsyncGenerator[None]:
    async with _one_server(setup, "nats-filled") as (_, bus):
        session = await bus.session()
        for number in range(HELD):
            await session.request(f"{SUBJECT}.{number}", os.urandom(MEGABYTE), read=parse_status)
        yield
        await bus.api(f"STREAM.PURGE.{subjects.STATE_STREAM}", {}, _Purged)
        await _silent(setup, FILLING)


@asynccontextmanager
async def _unread(setup: AlarmSetup) -> AsyncGenerator[None]:
    async with _one_server(setup, "nats-unread") as (server, bus):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(b'CONNECT {"verbose": false}\r\nSUB flood 1\r\n')
            await writer.drain()
            session = await bus.session()
            for _ in range(UNREAD):
                await session.client.publish("flood", bytes(MEGABYTE))
            yield
        finally:
            writer.close()
        await _silent(setup, SLOW)


@asynccontextmanager
async def _one_of_three_hangs(setup: AlarmSetup) -> AsyncGenerator[None]:
    folder: Path = setup.ground.work / "nats-three"
    async with nats_cluster(folder) as cluster, AsyncExitStack() as stack:
        for number, (server, monitor) in enumerate(
            zip(cluster.servers, cluster.monitors, strict=True)
        ):
            observed = msgspec.structs.replace(
                Observed.on_free_ports(f"nats-three-{number}"), monitor=monitor
            )
            await stack.enter_async_context(
                _scraped(setup, observed, BusAccess(url=server.url, credentials=folder))
            )
        bus = await stack.enter_async_context(connect(cluster.settings("watcher")))
        await bus.session()
        await cluster.until_whole(bus, subjects.STATE_STREAM)
        leader = await cluster.leader(bus, subjects.STATE_STREAM)
        assert leader is not None
        hung = cluster.servers[(cluster.servers.index(leader) + 1) % len(cluster.servers)]
        through = msgspec.structs.replace(cluster.settings("watcher"), nats_url=leader.url)
        publisher = await stack.enter_async_context(connect(through))
        session = await publisher.session()
        hung.freeze()
        try:
            for number in range(LAGGING):
                await session.request(f"{SUBJECT}.{number}", b"x", read=parse_status)
            await ground.until(setup.ground.server, "raybus_nats_stream_lag_messages > 1000")
            yield
        finally:
            hung.thaw()
        await _silent(setup, LAGS)


NATS: Final = (
    Cause(
        text=f"a NATS server with a limit of {LIMIT // 1024**2} MiB holds {HELD} MB of state",
        alerts=frozenset({FILLING}),
        provoked=_filled,
    ),
    Cause(
        text=f"a client of NATS subscribes and does not read {UNREAD} messages of 1 MB",
        alerts=frozenset({SLOW}),
        provoked=_unread,
    ),
    Cause(
        text="one of three NATS servers hangs (SIGSTOP)",
        alerts=frozenset({LAGS}),
        provoked=_one_of_three_hangs,
    ),
)
