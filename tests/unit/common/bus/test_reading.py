"""When a reader of a stream may consider it complete, and when its consumer counts as lost."""

import asyncio
import contextlib
from typing import cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from common.bus.consumer import RunningConsumer
from common.bus.nats import StoredMessage
from common.bus.session import Session

pytestmark = pytest.mark.looptime

REPLY = "$JS.ACK.RAY_STATE.reader.1.7.{}.1767225600000000000.{}"


def delivery(number: int, *, pending: int) -> Msg:
    reply = REPLY.format(number, pending)
    return Msg(cast("Client", None), subject=f"ray.state.1.{number}", reply=reply, data=b"{}")


async def test_a_last_message_that_cannot_be_taken_completes_nothing() -> None:
    taken: list[str] = []

    def take(stored: StoredMessage) -> None:
        if stored.subject.endswith("2"):
            raise KeyError("no such view")
        taken.append(stored.subject)

    complete: list[bool] = []
    reading = RunningConsumer(cast("Session", None), take, lambda: complete.append(True))
    await reading.receive(delivery(1, pending=1))
    await reading.receive(delivery(2, pending=0))

    assert (taken, complete) == (["ray.state.1.1"], [])
    assert (
        await reading.until_broken() == "ray.state.1.2 could not be taken: KeyError('no such view')"
    )


async def test_the_last_message_completes_what_was_read() -> None:
    complete: list[bool] = []
    reading = RunningConsumer(cast("Session", None), lambda _: None, lambda: complete.append(True))
    await reading.receive(delivery(1, pending=1))
    assert complete == []
    await reading.receive(delivery(2, pending=0))
    await reading.receive(delivery(3, pending=0))
    assert complete == [True]


async def test_a_broken_reading_completes_nothing_when_the_server_answers_that_nothing_is_there() -> (
    None
):
    """A message that is stored after the creation of the consumer and before its answer is
    delivered, but not counted in the answer.
    """
    complete: list[bool] = []

    def take(stored: StoredMessage) -> None:
        raise KeyError(stored.subject)

    reading = RunningConsumer(cast("Session", None), take, lambda: complete.append(True))
    await reading.receive(delivery(1, pending=1))
    reading.finish()
    assert complete == []


async def test_silence_is_noticed_by_a_reader_that_waits_in_several_parts() -> None:
    """A load repeatedly logs what it waits for; a lost consumer must not count as new each time."""
    reading, loop = (
        RunningConsumer(cast("Session", None), lambda _: None, lambda: None),
        asyncio.get_running_loop(),
    )
    why = ""
    while not why:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                why = await reading.until_broken()
        assert loop.time() < 15
    assert why == "the server was silent for 12 s"


async def test_a_reader_that_did_not_run_has_not_heard_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The heartbeats of that time are still in its socket."""
    loop = asyncio.get_running_loop()
    stopped, time = 0.0, loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + stopped)
    reading = RunningConsumer(cast("Session", None), lambda _: None, lambda: None)
    stopped = 11.0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(4):
            pytest.fail(await reading.until_broken())
