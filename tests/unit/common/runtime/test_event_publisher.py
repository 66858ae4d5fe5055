"""When an event is published, retried, or skipped."""

import pytest

from common import errors
from common.api.meta import ObjectMeta
from common.bus.cloud_events import Event
from common.kube.resources import RAY_SERVICE
from common.runtime import event_publisher
from common.runtime.actions import KubeEvent as KubernetesEvent
from common.runtime.actions import Publish
from common.runtime.cache import Cache
from common.runtime.event_publisher import Publisher
from common.runtime.writer import Writer
from service_reconciler.wiring import PUBLISHED
from support import upgrade_events as shown
from support.builders.upgrade import an_upgrade
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

FIRST, SECOND = (shown.an_event(data) for _, data in shown.EXAMPLES[:2])
GONE = errors.Unavailable("nobody answers: the stream is missing")


class Stream:
    """Accepts events, or refuses them with a reason."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.answer: Exception | None = None
        self.ids: list[str] = []

    async def publish(self, *_message: object, message_id: str, **_more: object) -> object:
        if self.answer is not None:
            raise self.answer
        self.ids.append(message_id)
        return None


class PublisherSetup:
    """A publisher with its stream, its clock, and the notes of its Kubernetes Events."""

    def __init__(self) -> None:
        self.stream, self.clock = Stream(), FakeClock()
        self.notes: list[str] = []
        self.publisher = Publisher(PUBLISHED, self.stream, self.clock, self._report)

    async def publish(self, event: Event) -> str | None:
        """Publish an event; return the reason if it is reported as lost."""
        before, observed = len(self.notes), an_upgrade()
        writer = Writer(FakeKube(), Cache(), {}, resource=RAY_SERVICE, root=observed.service)
        action = Publish(data=event.data, facts=(event.data,), at=event.time)
        assert not await self.publisher.publish(action, observed, writer)
        text = f"External consumers do not receive the upgrade's step {event.data.kind}: "
        return next((note.removeprefix(text) for note in self.notes[before:]), None)

    async def _report(self, _about: ObjectMeta, event: KubernetesEvent) -> None:
        self.notes.append(event.note)


async def test_a_process_publishes_an_event_once() -> None:
    setup = PublisherSetup()
    outcomes = [await setup.publish(each) for each in (FIRST, SECOND, FIRST)]
    assert (outcomes, setup.stream.ids) == ([None] * 3, [FIRST.id, SECOND.id])


async def test_what_is_refused_for_good_is_lost_and_not_tried_again() -> None:
    setup = PublisherSetup()
    setup.stream.answer = errors.Rejected("message size exceeds maximum")
    assert await setup.publish(FIRST) == "message size exceeds maximum"
    setup.stream.answer = None
    assert (await setup.publish(FIRST), setup.stream.ids) == (None, [])


async def test_without_a_connection_it_waits_for_ever() -> None:
    setup = PublisherSetup()
    setup.stream.answer, setup.stream.problem = GONE, "NATS is not reachable"
    for _ in range(100):
        with pytest.raises(errors.Unavailable):
            await setup.publish(FIRST)
        setup.clock.advance(10)


async def test_a_server_that_refuses_is_retried_and_then_skipped_until_it_takes_one() -> None:
    setup = PublisherSetup()
    setup.stream.answer = GONE
    with pytest.raises(errors.Unavailable):
        await setup.publish(FIRST)
    setup.clock.advance(event_publisher.LOST_AFTER - 1)
    with pytest.raises(errors.Unavailable):
        await setup.publish(FIRST)
    setup.clock.advance(1)
    assert [await setup.publish(each) for each in (FIRST, SECOND)] == [str(GONE)] * 2
    setup.stream.answer = None
    third = shown.an_event(shown.EXAMPLES[2][1])
    assert await setup.publish(third) is None
    setup.stream.answer = GONE
    with pytest.raises(errors.Unavailable):
        await setup.publish(shown.an_event(shown.EXAMPLES[3][1]))


async def test_the_backoff_begins_anew_after_a_while() -> None:
    setup = PublisherSetup()
    setup.stream.answer = GONE
    with pytest.raises(errors.Unavailable):
        await setup.publish(FIRST)
    setup.clock.advance(event_publisher.FORGOTTEN + 1)
    with pytest.raises(errors.Unavailable):
        await setup.publish(FIRST)
