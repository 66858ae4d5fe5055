"""Permitted requests cannot be abused, on a real server.

The abuses are a wider filter, the stream of another account, and a forged message.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.bus.session import Incoming, Session, parse_status
from nats_admin import event_streams, permissions
from support.servers.outside import Outside, outside
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

STATE: Final = "ray.state.3.pod.ns.one"
EVENT: Final = "ray.events.ns.svc.started"
SECRET: Final = b'{"metadata":{"name":"what only services may know"}}'
HAPPENED: Final = b'{"specversion":"1.0","id":"1"}'


class Answer(msgspec.Struct, frozen=True):
    """An answer of the JetStream API, as far as these tests read it."""

    error: dict[str, Any] | None = None
    streams: list[str] | None = None
    total: int = 0


class Borders:
    """Both streams and the mirror, one message in each, and a connection of every user."""

    def __init__(self, at: Outside) -> None:
        self.at = at

    async def session(self, user: str) -> Session:
        return await (await self.at.bus(user)).session()

    async def ask(self, user: str, subject: str, body: object) -> Answer:
        session = await self.session(user)
        asked = msgspec.json.encode(body)
        data = await session.request(f"$JS.API.{subject}", asked, read=lambda answer: answer.data)
        return msgspec.json.decode(data, type=Answer)

    async def last(self, stream: str) -> int:
        """Return the last sequence of a stream of ours."""
        return (await (await self.at.bus("provisioner")).stream(stream)).state.last_seq

    async def happen(self, number: int) -> None:
        """Publish one more event, and wait until external consumers have it."""
        service = await self.at.bus("service-reconciler")
        await service.publish(EVENT, HAPPENED, {}, expected=None, message_id=f"event-{number}")
        await self.at.until_mirrored()

    async def change(self, number: int) -> None:
        """Publish one more state."""
        watcher = await self.at.bus("watcher")
        await watcher.publish(STATE, SECRET, {}, expected=None, message_id=f"state-{number}")


@pytest_asyncio.fixture
async def borders(tmp_path: Path) -> AsyncGenerator[Borders]:
    async with outside(tmp_path) as at:
        borders = Borders(at)
        await borders.change(1)
        await borders.happen(1)
        yield borders


def _consumer(stream: str, **config: object) -> dict[str, object]:
    return {"stream_name": stream, "config": {"ack_policy": "none", **config}}


@pytest.mark.parametrize(
    "body", [{"filter_subject": "ray.state.>"}, {"filter_subjects": ["ray.>"]}, {}]
)
async def test_a_body_cannot_widen_the_filter_of_the_subject(
    borders: Borders, body: dict[str, object]
) -> None:
    inbox = (await borders.session("cluster-reconciler")).inbox
    narrow = "CONSUMER.CREATE.RAY_STATE.mine.ray.state.3.>"
    refused = await borders.ask(
        "cluster-reconciler", narrow, _consumer("RAY_STATE", deliver_subject=inbox, **body)
    )
    assert refused.error is not None


async def test_a_body_cannot_name_another_stream_than_the_subject(borders: Borders) -> None:
    inbox = (await borders.session("cluster-reconciler")).inbox
    subject = "CONSUMER.CREATE.RAY_STATE.mine.ray.state.>"
    body = _consumer("RAY_EVENTS", deliver_subject=inbox, filter_subject="ray.state.>")
    assert (await borders.ask("cluster-reconciler", subject, body)).error is not None


async def test_an_external_consumer_sees_one_stream(borders: Borders) -> None:
    found = await borders.ask("subscriber", "STREAM.NAMES", None)
    assert (found.streams, found.total) == (["RAY_EVENTS"], 1)


async def test_an_external_consumer_receives_no_state(borders: Borders) -> None:
    reported: list[bytes] = []
    session = await borders.session("subscriber")

    async def receive(message: Incoming) -> None:
        if "Status" not in (message.headers or {}):
            reported.append(message.data)

    await session.listen(f"{session.inbox}.deliver.x", receive)
    body = _consumer(
        "RAY_EVENTS", name="x", deliver_subject=f"{session.inbox}.deliver.x", filter_subject=">"
    )
    await borders.ask("subscriber", "CONSUMER.CREATE.RAY_EVENTS.x.>", body)
    await borders.change(2)
    await borders.happen(2)
    await eventually(lambda: len(reported) == 2, within=30, what="both events")
    assert reported == [HAPPENED, HAPPENED]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("ray.state.3.pod.ns.forged", id="a state"),
        pytest.param("ray.events.ns.svc.forged", id="an event"),
        pytest.param("JS.ray.CONSUMER.CREATE.RAY_EVENTS", id="a request across the border"),
        pytest.param("_INBOX_watcher.answer.1", id="an answer to a service"),
    ],
)
async def test_the_consumer_of_an_external_consumer_forges_nothing_in_our_account(
    borders: Borders, target: str
) -> None:
    received: list[str] = []
    watcher = await borders.session("watcher")

    async def receive(message: Incoming) -> None:
        received.append(message.subject)

    await watcher.listen("_INBOX_watcher.>", receive)
    body = _consumer(
        "RAY_EVENTS", name="forger", deliver_subject=target, filter_subject="ray.events.>"
    )
    await borders.ask("subscriber", "CONSUMER.CREATE.RAY_EVENTS.forger.ray.events.>", body)
    await borders.happen(2)
    await borders.change(2)
    assert (await borders.last("RAY_STATE"), await borders.last("RAY_EVENTS")) == (2, 2)
    assert target not in received


@pytest.mark.parametrize("target", ["ray.state.3.pod.ns.forged", "ray.events.ns.svc.forged"])
async def test_a_services_consumer_stores_nothing_in_a_stream(
    borders: Borders, target: str
) -> None:
    body = _consumer(
        "RAY_STATE", name="forger", deliver_subject=target, filter_subject="ray.state.>"
    )
    await borders.ask("cluster-reconciler", "CONSUMER.CREATE.RAY_STATE.forger.ray.state.>", body)
    await borders.change(2)
    await borders.happen(2)
    assert (await borders.last("RAY_STATE"), await borders.last("RAY_EVENTS")) == (2, 2)


async def test_only_events_cross_the_border_whatever_external_consumers_may_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give an external consumer all rights in its account, so that only the border protects."""
    users = [
        msgspec.structs.replace(user, publish=(">",), subscribe=(">",))
        if user.name == "subscriber"
        else user
        for user in permissions.USERS
    ]
    monkeypatch.setattr(permissions, "USERS", tuple(users))
    async with outside(tmp_path) as at:
        borders = Borders(at)
        mighty = await borders.session("subscriber")
        for verb in (
            "CONSUMER.CREATE.RAY_STATE",
            "STREAM.INFO.RAY_STATE",
            "STREAM.DELETE.RAY_EVENTS",
            "INFO",
        ):
            with pytest.raises(errors.Unavailable, match="no responders"):
                await mighty.request(f"{event_streams.MIRROR_API}.{verb}", b"{}", read=parse_status)
        for subject in (STATE, EVENT):
            await mighty.client.publish(subject, b"forged")
        await mighty.client.flush()
        assert (await borders.last("RAY_STATE"), await borders.last("RAY_EVENTS")) == (0, 0)
