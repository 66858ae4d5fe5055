"""When an upgrade event is published, retried, or skipped."""

from collections.abc import Mapping

import pytest

from common import errors
from service_reconciler import publisher
from service_reconciler.publisher import Publisher
from support import upgrade_events as shown
from support.fakes.clock import FakeClock

FIRST, SECOND = (shown.an_event(data) for _, data in shown.EXAMPLES[:2])
GONE = errors.Unavailable("nobody answers: the stream is missing")


class Stream:
    """Takes events, or refuses with a reason."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.answer: Exception | None = None
        self.ids: list[str] = []

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], *, expected: int | None, message_id: str
    ) -> object:
        if self.answer is not None:
            raise self.answer
        self.ids.append(message_id)
        return None


class Desk:
    """A publisher, its stream and its clock."""

    def __init__(self) -> None:
        self.stream, self.clock = Stream(), FakeClock()
        self.publisher = Publisher(self.stream, self.clock)


async def test_a_process_publishes_an_event_once() -> None:
    desk = Desk()
    outcomes = [await desk.publisher.publish(each) for each in (FIRST, SECOND, FIRST)]
    assert (outcomes, desk.stream.ids) == ([None] * 3, [FIRST.id, SECOND.id])


async def test_what_is_refused_for_good_is_lost_and_not_tried_again() -> None:
    desk = Desk()
    desk.stream.answer = errors.Rejected("message size exceeds maximum")
    assert await desk.publisher.publish(FIRST) == "message size exceeds maximum"
    desk.stream.answer = None
    assert (await desk.publisher.publish(FIRST), desk.stream.ids) == (None, [])


async def test_without_a_connection_it_waits_for_ever() -> None:
    desk = Desk()
    desk.stream.answer, desk.stream.problem = GONE, "NATS is not reachable"
    for _ in range(100):
        with pytest.raises(errors.Unavailable):
            await desk.publisher.publish(FIRST)
        desk.clock.advance(10)


async def test_a_server_that_refuses_is_retried_and_then_skipped_until_it_takes_one() -> None:
    desk = Desk()
    desk.stream.answer = GONE
    with pytest.raises(errors.Unavailable):
        await desk.publisher.publish(FIRST)
    desk.clock.advance(publisher.LOST_AFTER - 1)
    with pytest.raises(errors.Unavailable):
        await desk.publisher.publish(FIRST)
    desk.clock.advance(1)
    assert [await desk.publisher.publish(each) for each in (FIRST, SECOND)] == [str(GONE)] * 2
    desk.stream.answer = None
    third = shown.an_event(shown.EXAMPLES[2][1])
    assert await desk.publisher.publish(third) is None
    desk.stream.answer = GONE
    with pytest.raises(errors.Unavailable):
        await desk.publisher.publish(shown.an_event(shown.EXAMPLES[3][1]))


async def test_the_backoff_begins_anew_after_a_while() -> None:
    desk = Desk()
    desk.stream.answer = GONE
    with pytest.raises(errors.Unavailable):
        await desk.publisher.publish(FIRST)
    desk.clock.advance(publisher.FORGOTTEN + 1)
    with pytest.raises(errors.Unavailable):
        await desk.publisher.publish(FIRST)
