"""A repeated publish to the state stream: the fake stream of unit tests answers as a real server does."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from common import errors
from common.bus import messages, streams, subjects
from common.bus.feed import Synced
from common.bus.nats import connect
from common.settings import Settings
from nats_admin import stream_keeper
from support.fakes.stream import FakeStateStream
from support.servers.nats import nats_server

pytestmark = [pytest.mark.integration]

SUBJECT = subjects.synced(3)
Publish = Callable[[int], Awaitable[int]]
"""Publishes a message with the same id, at an expected sequence of the subject; returns the sequence at which it is stored."""


@asynccontextmanager
async def real(folder: Path) -> AsyncGenerator[Publish]:
    wire = messages.encode(Synced(epoch="e", version=1))
    with nats_server(folder) as server:
        async with connect(Settings(service="test", nats_url=server.url)) as bus:
            await bus.session()
            await stream_keeper.ensure(bus, [streams.state()])
            yield lambda expected: bus.publish(
                SUBJECT, wire.payload, wire.headers, expected=expected, message_id="same"
            )


@asynccontextmanager
async def fake(_folder: Path) -> AsyncGenerator[Publish]:
    wire, stream = messages.encode(Synced(epoch="e", version=1)), FakeStateStream()
    yield lambda expected: stream.publish(SUBJECT, wire.payload, wire.headers, expected=expected, message_id="same")


@pytest.mark.parametrize("stream", [pytest.param(fake, id="fake"), pytest.param(real, id="nats-server")])
async def test_a_repetition_meets_what_the_first_try_stored(
    stream: Callable[[Path], AbstractAsyncContextManager[Publish]], tmp_path: Path
) -> None:
    """The expected sequence is checked before the id, so a repetition after a lost answer is refused although it is stored."""
    async with stream(tmp_path) as publish:
        stored = await publish(0)
        with pytest.raises(errors.Conflict):
            await publish(0)
        assert await publish(stored) == stored
