"""Named subscribers on a real server.

Each reads its own namespaces by the one consumer that was created for it, and can create none.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.bus import streams
from common.bus.nats import Bus, connect
from common.bus.session import Incoming
from nats_admin import event_streams, stream_keeper
from nats_admin.server_conf import MAX_OUTSIDE_CONSUMERS
from nats_admin.subscribers import NamedSubscriber
from support.servers.relayed import Secured, secured_nats
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

ONE: Final = NamedSubscriber("one", ("red", "blue"))
TWO: Final = NamedSubscriber("two", ("green",))
ALL: Final = NamedSubscriber("auditor")
NAMED: Final = (ONE, TWO, ALL)
CONSUMERS: Final = [each.build_consumer_config() for each in NAMED]
SMALL: Final = 2 * 1024 * 1024
"""Maximum bytes of a stream, so small that one service with endless upgrades would fill it."""
EVENTS: Final = [f"ray.events.{namespace}.svc.started" for namespace in ("red", "blue", "green")]


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncGenerator[Secured]:
    """A server with streams, the consumers of three named subscribers, and one event in each of three namespaces."""
    async with secured_nats(tmp_path, subscribers=NAMED) as running:
        await provide(running)
        async with connect(running.settings("service-reconciler")) as service:
            await service.session()
            for event in EVENTS:
                await service.publish(event, b"{}", {}, expected=None, message_id=event)
        yield running


async def provide(secured: Secured, consumers: Sequence[streams.Config] = CONSUMERS) -> None:
    async with (
        connect(secured.settings("provisioner")) as own,
        connect(secured.settings("provisioner-outside")) as far,
    ):
        await own.session()
        await far.session()
        assert (
            await stream_keeper.ensure_streams(
                own, [streams.build_state_config(), event_streams.build_stream_config()]
            )
            == []
        )
        assert await stream_keeper.ensure_streams(far, [event_streams.build_mirror_config()]) == []
        await stream_keeper.ensure_consumers(far, consumers)


async def read(
    secured: Secured, subscriber: NamedSubscriber, expected: int, *, consumer: str | None = None
) -> list[str]:
    """Ask for ten events as a named subscriber, and return the subjects of the events that arrive."""
    received: list[str] = []

    async def receive(message: Incoming) -> None:
        if message.subject.startswith("ray.events."):
            received.append(message.subject)
            await session.publish(message.reply)

    async with connect(secured.settings(subscriber.user)) as bus:
        session = await bus.session()
        inbox = f"{session.inbox}.events"
        end = await session.listen(inbox, receive)
        ask = {"batch": 10, "expires": 2_000_000_000}
        name = consumer or subscriber.name
        await session.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.RAY_EVENTS.{name}", msgspec.json.encode(ask), reply=inbox
        )
        await eventually(
            lambda: len(received) >= expected,
            within=5.0,
            what=f"{expected} events, {received} came",
        )
        await asyncio.sleep(0.2 if expected == 0 else 0)
        await end()
    return received


@pytest.mark.parametrize("is_mirror", [False, True], ids=["stream", "mirror"])
async def test_one_service_that_is_upgraded_without_end_keeps_the_history_of_others(
    secured: Secured, *, is_mirror: bool
) -> None:
    noise = random.Random(1)
    loud, last = "ray.events.red.loud.started", 3 * event_streams.PER_SUBJECT
    async with (
        connect(secured.settings("provisioner")) as own,
        connect(secured.settings("provisioner-outside")) as far,
        connect(secured.settings("service-reconciler")) as service,
    ):
        await own.session()
        await far.session()
        await stream_keeper.ensure_streams(
            own, [event_streams.build_stream_config(max_bytes=SMALL)], may_change=True
        )
        await stream_keeper.ensure_streams(
            far, [event_streams.build_mirror_config(max_bytes=SMALL)], may_change=True
        )
        await service.session()
        for number in range(last):
            await service.publish(
                loud, noise.randbytes(1024), {}, expected=None, message_id=f"loud-{number}"
            )
        bus, wanted = (far if is_mirror else own), last + len(EVENTS)

        async def has_all() -> bool:
            return (await bus.stream("RAY_EVENTS")).state.last_seq == wanted

        await eventually_true(has_all, within=20.0, what=f"{wanted} events in the stream")
        assert (await bus.stream("RAY_EVENTS")).state.messages == event_streams.PER_SUBJECT + len(
            EVENTS
        )
    assert await read(secured, TWO, 1) == EVENTS[2:]


async def test_each_reads_its_own_namespaces_and_no_other(secured: Secured) -> None:
    assert await read(secured, ONE, 2) == EVENTS[:2]
    assert await read(secured, TWO, 1) == EVENTS[2:]
    assert await read(secured, ALL, 3) == EVENTS


async def test_what_was_acknowledged_does_not_come_again(secured: Secured) -> None:
    assert await read(secured, TWO, 1) == EVENTS[2:]
    assert await read(secured, TWO, 0) == []


async def test_it_gets_nothing_from_anothers_consumer(secured: Secured) -> None:
    assert await read(secured, ONE, 0, consumer=TWO.name) == []


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        (
            "CONSUMER.CREATE.RAY_EVENTS.mine.ray.events.green.>",
            {"stream_name": "RAY_EVENTS", "config": {"name": "mine"}},
        ),
        (
            "CONSUMER.CREATE.RAY_EVENTS.one",
            {"stream_name": "RAY_EVENTS", "config": {"name": "one"}},
        ),
        ("CONSUMER.CREATE.RAY_EVENTS", {"stream_name": "RAY_EVENTS", "config": {}}),
        ("CONSUMER.DELETE.RAY_EVENTS.two", None),
        ("CONSUMER.INFO.RAY_EVENTS.two", None),
        ("STREAM.INFO.RAY_EVENTS", {"subjects_filter": ">"}),
        ("STREAM.MSG.GET.RAY_EVENTS", {"seq": 3}),
        ("DIRECT.GET.RAY_EVENTS", {"seq": 3}),
    ],
)
async def test_it_can_neither_make_a_consumer_nor_see_more_of_the_stream(
    secured: Secured, subject: str, body: object
) -> None:
    async with connect(secured.settings(ONE.user)) as bus:
        await bus.session()
        with pytest.raises(errors.RaybusError, match="may not publish"):
            await bus.api(subject, body, dict[str, Any])


async def test_the_user_that_makes_its_own_consumers_makes_no_more_than_the_limit(
    secured: Secured,
) -> None:
    config = {
        "deliver_policy": "all",
        "ack_policy": "none",
        "inactive_threshold": 60 * streams.SECOND,
    }
    wanted = {"stream_name": "RAY_EVENTS", "config": config}
    async with connect(secured.settings("subscriber")) as bus:
        await bus.session()
        for _ in range(MAX_OUTSIDE_CONSUMERS - len(NAMED)):
            await bus.api("CONSUMER.CREATE.RAY_EVENTS", wanted, dict[str, Any])
        with pytest.raises(errors.RaybusError, match="maximum consumers limit"):
            await bus.api("CONSUMER.CREATE.RAY_EVENTS", wanted, dict[str, Any])
    assert await read(secured, ONE, 2) == EVENTS[:2]


async def test_a_change_of_namespaces_filters_the_consumer_anew_and_forgets_nothing(
    secured: Secured,
) -> None:
    assert await read(secured, TWO, 1) == EVENTS[2:]

    await provide(secured, [NamedSubscriber("two", ("green", "red")).build_consumer_config()])

    assert await read(secured, TWO, 0) == []
    async with connect(secured.settings("provisioner-outside")) as far:
        assert await filters(far, "two") == ["ray.events.green.>", "ray.events.red.>"]


async def test_a_keeper_makes_consumers_again_that_went_with_their_stream(secured: Secured) -> None:
    async with connect(secured.settings("administrator-outside")) as administrator:
        await administrator.session()
        await administrator.api("STREAM.DELETE.RAY_EVENTS", None, dict[str, Any])
    async with connect(secured.settings("keeper-outside")) as keeper, asyncio.TaskGroup() as group:
        keeping = group.create_task(
            stream_keeper.keep_streams(keeper, [event_streams.build_mirror_config()], CONSUMERS)
        )
        assert await read_when_there(secured) == EVENTS[2:]
        keeping.cancel()


async def read_when_there(secured: Secured) -> list[str]:
    async with connect(secured.settings("provisioner-outside")) as far, asyncio.timeout(10.0):
        await far.session()
        while True:
            try:
                await filters(far, "two")
            except errors.NotFound:
                await asyncio.sleep(0.05)
            else:
                return await read(secured, TWO, 1)


async def filters(bus: Bus, name: str) -> object:
    await bus.session()
    return (
        await bus.api(f"CONSUMER.INFO.RAY_EVENTS.{name}", None, stream_keeper.ConsumerInfo)
    ).filters
