"""A connection that the library closed without a callback is noticed all the same."""

import asyncio
from typing import cast

import pytest

from common.bus.client import NatsClient
from common.bus.session import LOST, Session

pytestmark = pytest.mark.looptime


class SilentClient:
    """Closes on request without a callback, as nats-py does when its last flush meets a dead server."""

    def __init__(self) -> None:
        self.is_closed = False


async def test_a_client_that_closes_without_calling_back_ends_the_connection() -> None:
    client = SilentClient()
    session = Session(cast("NatsClient", client), inbox="")
    loop = asyncio.get_running_loop()
    loop.call_later(10, setattr, client, "is_closed", True)
    async with asyncio.timeout(12):
        await session.until_lost()
    assert 10 <= loop.time() < 12


async def test_a_call_back_ends_the_connection_at_once() -> None:
    session = Session(cast("NatsClient", SilentClient()), inbox="")
    loop = asyncio.get_running_loop()
    loop.call_later(0.1, session.end, LOST)
    await session.until_lost()
    assert loop.time() < 0.5
