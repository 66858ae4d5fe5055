"""Events reach the receiver in the order in which they arrive."""

import asyncio

import pytest

from common.bus.nats import StoredMessage
from raybus_cli.events.run import EventHandOver


class Reading:
    """A read of the stream that the test can break."""

    def __init__(self) -> None:
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def until_broken(self) -> str:
        return await self.broken


class Receiver:
    """Accepts events up to the sequence `last`, and fails at the sequence `fails_at`."""

    def __init__(self, *, last: int = 99, fails_at: int = 99) -> None:
        self._last = last
        self._fails_at = fails_at
        self.taken: list[int] = []

    def receive(self, event: StoredMessage) -> bool:
        if event.sequence == self._fails_at:
            raise BrokenPipeError
        self.taken.append(event.sequence)
        return event.sequence < self._last

    def finish_stored(self) -> bool:
        self.taken.append(0)
        return True


def an_event(sequence: int) -> StoredMessage:
    return StoredMessage("raybus.events.a", sequence, {}, b"")


async def test_the_receiver_gets_no_event_after_the_last_one_that_it_wants() -> None:
    receiver = Receiver(last=5)
    handing = EventHandOver(receiver)
    handing.take(an_event(4))
    handing.finish_stored()
    handing.take(an_event(5))
    handing.take(an_event(6))
    assert await handing.run(Reading()) is None
    assert (receiver.taken, handing.last) == ([4, 0, 5], 5)


async def test_a_broken_read_has_a_reason_and_continues_after_the_last_event() -> None:
    handing, reading = EventHandOver(Receiver()), Reading()
    handing.take(an_event(7))
    reading.broken.set_result("delivery 8 is missing")
    assert await handing.run(reading) == "delivery 8 is missing"
    assert handing.last == 7


async def test_an_error_of_the_receiver_is_raised() -> None:
    handing = EventHandOver(Receiver(fails_at=3))
    handing.take(an_event(2))
    handing.take(an_event(3))
    with pytest.raises(BrokenPipeError):
        await handing.run(Reading())
    assert handing.last == 2
