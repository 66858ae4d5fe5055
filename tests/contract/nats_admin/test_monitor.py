"""`nats_admin.monitor` exports what the monitoring port of a real nats-server reports."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from common.bus import streams
from common.bus.nats import Bus, connect
from common.bus.session import parse_status
from common.bus.streams import StreamInfo
from common.observability.health import HealthCheck
from common.settings import Settings
from nats_admin.monitor import Monitor
from raybus_cli import child_processes
from support.servers.nats import NatsServer, nats_server
from support.servers.nats_cluster import nats_cluster
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

LIMIT = 64 * 1024 * 1024
SUBJECT = "ray.state.v1.p00.x"
STATE = {"account": "RAY", "stream": "RAY_STATE"}


@asynccontextmanager
async def observed(
    url: str, port: int = 0, ready: HealthCheck = lambda: None
) -> AsyncGenerator[CollectorRegistry]:
    """Run the monitor of a server during a block."""
    registry = CollectorRegistry()
    async with asyncio.TaskGroup() as group:
        observing = group.create_task(
            Monitor(url).run(port or child_processes.find_free_ports(1)[0], registry, ready=ready)
        )
        await eventually(
            lambda: registry.get_sample_value("raybus_nats_up") is not None, what="the collector"
        )
        yield registry
        observing.cancel()


def value(
    registry: CollectorRegistry, name: str, labels: dict[str, str] | None = None
) -> float | None:
    return registry.get_sample_value(f"raybus_nats_{name}", labels or {})


@asynccontextmanager
async def single(folder: Path) -> AsyncGenerator[tuple[NatsServer, str, Bus]]:
    """Run one server without users, with an empty state stream in the account that has no name."""
    (monitor,) = child_processes.find_free_ports(1)
    store = f'store_dir: "{folder / "jetstream"}", max_file_store: {LIMIT}'
    text = f'server_name: "nats"\nmax_payload: 2MB\nhttp: "127.0.0.1:{monitor}"\njetstream {{ {store} }}\n'
    with nats_server(folder, configuration=text) as server:
        async with connect(Settings(service="watcher", nats_url=server.url)) as bus:
            await bus.session()
            await bus.api("STREAM.CREATE.RAY_STATE", streams.build_state_config(), StreamInfo)
            yield server, f"http://127.0.0.1:{monitor}", bus


async def test_storage_memory_connections_and_streams_of_a_real_server(tmp_path: Path) -> None:
    async with single(tmp_path) as (_, url, bus):
        session = await bus.session()
        for number in range(3):
            await session.request(f"{SUBJECT}.{number}", bytes(1000), read=parse_status)
        async with observed(url) as registry:
            await eventually(lambda: value(registry, "up") == 1, within=20.0, what="an answer")
            of = {"account": "$G", "stream": "RAY_STATE"}
            assert value(registry, "storage_limit_bytes") == LIMIT
            assert value(registry, "connections") == 1
            assert value(registry, "slow_consumers_total") == 0
            assert (value(registry, "memory_bytes") or 0) > 1_000_000
            assert value(registry, "stream_messages", of) == 3
            assert (value(registry, "stream_bytes", of) or 0) > 3000
            assert (value(registry, "storage_bytes") or 0) > 0
            assert value(registry, "stream_leader", of) == 1
            assert value(registry, "stream_lag_messages", of) == 0
            assert value(registry, "stream_replicas_away", of) == 0


async def test_a_server_that_is_gone_is_down_and_leaves_no_figures_until_it_is_back(
    tmp_path: Path,
) -> None:
    async with single(tmp_path) as (server, url, _), observed(url) as registry:
        await eventually(lambda: value(registry, "up") == 1, within=20.0, what="an answer")
        server.kill()
        await eventually(lambda: value(registry, "up") == 0, within=20.0, what="the loss")
        assert value(registry, "storage_bytes") is None
        server.start()
        await eventually(lambda: value(registry, "up") == 1, within=20.0, what="the return")


async def test_metrics_are_served_and_readiness_names_why_there_are_none() -> None:
    nobody, port = child_processes.find_free_ports(2)
    async with (
        observed(f"http://127.0.0.1:{nobody}", port),
        httpx.AsyncClient(trust_env=False) as client,
    ):

        async def has_reason() -> bool:
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/readyz")
            except httpx.TransportError:
                return False
            return (
                answer.status_code == 503
                and f"127.0.0.1:{nobody} of NATS does not answer" in answer.text
            )

        await eventually_true(has_reason, within=20.0, every=0.1, what="the reason")


async def test_readiness_names_a_problem_of_the_streams(tmp_path: Path) -> None:
    (port,) = child_processes.find_free_ports(1)
    async with (
        single(tmp_path) as (_, url, _),
        observed(url, port, ready=lambda: "stream RAY_STATE: it is away"),
        httpx.AsyncClient(trust_env=False) as client,
    ):

        async def has_reason() -> bool:
            answer = await client.get(f"http://127.0.0.1:{port}/readyz")
            return answer.text == "stream RAY_STATE: it is away\n"

        await eventually_true(has_reason, within=20.0, every=0.1, what="the reason")


async def test_a_leader_reports_the_replica_of_a_killed_server_and_leads_no_more_without_a_majority(
    tmp_path: Path,
) -> None:
    async with nats_cluster(tmp_path) as cluster, connect(cluster.settings("watcher")) as bus:
        await bus.session()
        await cluster.until_whole(bus, "RAY_STATE")
        leader = await cluster.leader(bus, "RAY_STATE")
        assert leader is not None
        number = cluster.servers.index(leader)
        to_leader = msgspec.structs.replace(cluster.settings("watcher"), nats_url=leader.url)
        async with (
            connect(to_leader) as through,
            observed(f"http://127.0.0.1:{cluster.monitors[number]}") as leading,
            observed(f"http://127.0.0.1:{cluster.monitors[(number + 1) % 3]}") as following,
        ):
            await eventually(
                lambda: value(leading, "stream_replicas_away", STATE) == 0,
                within=20.0,
                what="all there",
            )
            await eventually(
                lambda: value(following, "stream_leader", STATE) == 0,
                within=20.0,
                what="a follower",
            )
            assert value(following, "stream_lag_messages", STATE) is None
            cluster.servers[(number + 2) % 3].kill()
            session = await through.session()
            for count in range(20):
                await session.request(f"{SUBJECT}.{count}", b"x", read=parse_status)
            await eventually(
                lambda: (value(leading, "stream_lag_messages", STATE) or 0) >= 20,
                within=20.0,
                what="the lag",
            )
            await eventually(
                lambda: value(leading, "stream_replicas_away", STATE) == 1,
                within=60.0,
                what="a replica that is away",
            )
            cluster.servers[(number + 1) % 3].kill()
            await eventually(
                lambda: value(leading, "stream_leader", STATE) == 0, within=60.0, what="no leader"
            )
            assert value(leading, "stream_lag_messages", STATE) is None
