"""`NatsClient` reads private state of nats-py; these tests run it against a real server."""

from pathlib import Path

import pytest

from common.bus.client import NatsClient
from common.bus.nats import connect
from common.settings import Settings
from support.servers.nats import nats_server
from support.servers.relayed import secured_nats

pytestmark = [pytest.mark.integration]


async def test_a_connection_with_tls_shows_the_certificate_of_the_server(tmp_path: Path) -> None:
    async with secured_nats(tmp_path) as secured, connect(secured.settings("watcher")) as bus:
        peer = (await bus.session()).client.find_tls_peer()
        assert peer is not None
        assert (peer.getpeercert() or {}).get("notAfter")


async def test_without_tls_there_is_no_peer_and_a_ping_is_answered(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connect(Settings(service="watcher", nats_url=server.url)) as bus:
            session = await bus.session()
            assert session.client.find_tls_peer() is None
            assert await session.is_answered()
            await session.client.close()
            assert not await session.is_answered()


def test_names_are_unique() -> None:
    client = NatsClient()
    made = {client.make_unique_name(), client.make_unique_name(), NatsClient().make_unique_name()}
    assert len(made) == 3
