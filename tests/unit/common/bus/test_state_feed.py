"""Versions that restart are noticed even during the previous load, whose messages may arrive before
the server's answer about their consumer.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from common.bus import consumer, messages, subjects
from common.bus.messages import Synced
from common.bus.nats import Bus
from common.bus.session import Handler
from common.bus.state_feed import StateFeed
from common.bus.subjects import TreeKind, TreeLocation
from support.fakes.listener import Recorder

pytestmark = pytest.mark.looptime

PARTITION = 7
RESTORED = Synced(epoch="two", version=3, history="two")
REPLY = "$JS.ACK.RAY_STATE.reader.1.{0}.{0}.1767225600000000000.0"


class EarlyServer:
    """Replaces `Bus` and `Session`: it delivers the marker of a partition before it answers that it
    created the consumer.
    """

    inbox = "_INBOX"

    def __init__(self) -> None:
        self.marker = Synced(epoch="one", version=9)
        self.subject = subjects.build_marker_subject(PARTITION)
        self.restored: Synced | None = None
        """The marker after a cancellation that nobody requested, which arrives during the wait for
        the first answer."""
        self.lost: Callable[[str], None] = lambda _: None
        self._deliver: Handler | None = None

    async def session(self) -> "EarlyServer":
        return self

    def when_lost(self, callback: Callable[[str], None]) -> Callable[[], None]:
        self.lost = callback
        return lambda: None

    async def listen(self, subject: str, handler: Handler) -> Any:
        self._deliver = handler

        async def end() -> None:
            self._deliver = None

        return end

    async def deliver(self, headers: dict[str, str], payload: bytes, number: int = 1) -> None:
        """Deliver a message with a sequence number to the reader."""
        assert self._deliver is not None
        client, reply = cast("Client", None), REPLY.format(number)
        await self._deliver(
            Msg(client, subject=self.subject, reply=reply, data=payload, headers=headers)
        )

    async def api(self, subject: str, body: object, answer_type: type[Any]) -> Any:
        wire = messages.encode(self.marker)
        await self.deliver(wire.headers, wire.payload)
        if self.restored is not None:
            self.marker, self.restored = self.restored, None
            raise asyncio.CancelledError
        await asyncio.sleep(0.01)
        return answer_type(num_pending=1)


async def test_versions_that_began_again_are_noticed_before_the_consumer_is_answered_for() -> None:
    server, recorder = EarlyServer(), Recorder()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(
            StateFeed(cast("Bus", server), reader="test").follow(PARTITION, recorder)
        )
        await asyncio.sleep(1)
        assert (recorder.syncs, recorder.rewinds) == ([9], 0)

        server.marker = RESTORED
        server.lost("the connection was lost")
        await asyncio.sleep(1)
        assert (recorder.syncs, recorder.rewinds) == ([9, 3], 1)
        assert recorder.is_synced
        following.cancel()


async def test_versions_that_began_again_are_noticed_after_a_stray_cancellation() -> None:
    server, recorder = EarlyServer(), Recorder()
    server.restored = RESTORED
    async with asyncio.TaskGroup() as group:
        following = group.create_task(
            StateFeed(cast("Bus", server), reader="test").follow(PARTITION, recorder)
        )
        await asyncio.sleep(1)
        assert (recorder.syncs, recorder.rewinds) == ([9, 3], 1)
        following.cancel()


async def test_a_marker_under_the_subject_of_an_object_completes_no_load() -> None:
    server, recorder = EarlyServer(), Recorder()
    server.subject = subjects.build_state_subject(
        TreeLocation(PARTITION, TreeKind.SERVICE), "Pod", "ns", "one"
    )
    async with asyncio.TaskGroup() as group:
        following = group.create_task(
            StateFeed(cast("Bus", server), reader="test").follow(PARTITION, recorder)
        )
        await asyncio.sleep(1)
        assert recorder.syncs == []
        following.cancel()


async def test_a_marker_that_is_not_readable_stops_its_partition() -> None:
    server, recorder = EarlyServer(), Recorder()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(
            StateFeed(cast("Bus", server), reader="test").follow(PARTITION, recorder)
        )
        await asyncio.sleep(1)
        assert recorder.is_synced

        await server.deliver({messages.KIND: messages.SYNCED}, b"{", number=2)
        assert not recorder.is_synced
        following.cancel()


RENEWED = Synced(epoch="one", version=9, renewed=10.0)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a consumer wait for long, because this server sends no heartbeats."""
    monkeypatch.setattr(consumer, "MAX_SILENCE_SECONDS", 10_000.0)


@pytest.mark.usefixtures("patience")
async def test_a_partition_is_confirmed_by_the_marker_of_another_one() -> None:
    server, recorder = EarlyServer(), Recorder()
    feed = StateFeed(cast("Bus", server), reader="test")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.follow(PARTITION, recorder))
        await asyncio.sleep(1)
        for sequence in range(5, 15):
            feed.confirm(RENEWED, sequence)
            await asyncio.sleep(10)
        assert (recorder.is_synced, recorder.reasons) == (True, ["started"])

        await asyncio.sleep(51)
        assert not recorder.is_synced
        assert "has not confirmed the state" in recorder.reasons[-1]

        feed.confirm(RENEWED, 14)  # delivered again
        await asyncio.sleep(1)
        assert not recorder.is_synced

        feed.confirm(RENEWED, 15)
        await asyncio.sleep(1)
        assert (recorder.is_synced, recorder.syncs) == (True, [9, 9])
        following.cancel()


@pytest.mark.usefixtures("patience")
async def test_a_load_of_a_stale_state_waits_for_a_confirmation() -> None:
    server, recorder = EarlyServer(), Recorder()
    feed = StateFeed(cast("Bus", server), reader="test")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(feed.follow(PARTITION, recorder))
        await asyncio.sleep(1)
        feed.confirm(RENEWED, 5)
        await asyncio.sleep(61)
        server.lost("the connection was lost")
        await asyncio.sleep(61)
        assert (recorder.is_synced, recorder.syncs) == (False, [9])

        feed.confirm(RENEWED, 6)
        assert (recorder.is_synced, recorder.syncs) == (True, [9, 9])
        following.cancel()


async def test_a_marker_of_a_recreated_stream_confirms_the_state() -> None:
    feed = StateFeed(cast("Bus", EarlyServer()), reader="test")
    feed.confirm(RENEWED, 500)
    await asyncio.sleep(61)
    assert feed.is_stale
    feed.confirm(Synced(epoch="two", version=9, renewed=10.0), 7)
    assert not feed.is_stale
