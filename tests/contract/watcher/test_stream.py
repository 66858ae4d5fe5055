"""A repeated publish to the state stream: the fake stream answers as a real server does."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from common import errors
from common.bus import messages, streams, subjects
from common.bus.messages import ObjectState, Synced, Tombstone
from common.bus.nats import connect
from common.bus.subjects import TreeKind, TreeLocation
from common.kube.installation import Installation
from common.settings import Settings
from nats_admin import stream_keeper
from support.fakes.kube import FakeKube
from support.fakes.stream import FakeStateStream
from support.servers.nats import nats_server
from watcher.adapters.bus import NatsStream
from watcher.ports import StateStream, StreamEntry

pytestmark = [pytest.mark.integration]

SUBJECT = subjects.build_marker_subject(3)
Publish = Callable[[int], Awaitable[int]]
"""Publishes a message, always with the same id, at an expected sequence of the subject.

Returns the sequence at which the message is stored."""


@asynccontextmanager
async def real(folder: Path) -> AsyncGenerator[Publish]:
    wire = messages.encode(Synced(epoch="e", version=1))
    with nats_server(folder) as server:
        async with connect(Settings(service="test", nats_url=server.url)) as bus:
            await bus.session()
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()])
            yield lambda expected: bus.publish(
                SUBJECT, wire.payload, wire.headers, expected=expected, message_id="same"
            )


@asynccontextmanager
async def fake(_folder: Path) -> AsyncGenerator[Publish]:
    wire, stream = messages.encode(Synced(epoch="e", version=1)), FakeStateStream()
    yield lambda expected: stream.publish(
        SUBJECT, wire.payload, wire.headers, expected=expected, message_id="same"
    )


@pytest.mark.parametrize(
    "stream", [pytest.param(fake, id="fake"), pytest.param(real, id="nats-server")]
)
async def test_a_repetition_meets_what_the_first_try_stored(
    stream: Callable[[Path], AbstractAsyncContextManager[Publish]], tmp_path: Path
) -> None:
    """The server checks the expected sequence before the id.

    So it refuses a repetition after a lost answer, although the message is stored.
    """
    async with stream(tmp_path) as publish:
        stored = await publish(0)
        with pytest.raises(errors.Conflict):
            await publish(0)
        assert await publish(stored) == stored


@asynccontextmanager
async def real_stream(folder: Path) -> AsyncGenerator[StateStream]:
    with nats_server(folder) as server:
        async with connect(Settings(service="test", nats_url=server.url)) as bus:
            await bus.session()
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()])
            yield NatsStream(bus, Installation(FakeKube(), "raybus"), may_write=lambda: True)


@asynccontextmanager
async def fake_stream(_folder: Path) -> AsyncGenerator[StateStream]:
    yield FakeStateStream()


@pytest.mark.parametrize(
    "made", [pytest.param(fake_stream, id="fake"), pytest.param(real_stream, id="nats-server")]
)
async def test_what_was_stored_since_a_sequence_is_the_last_of_each_subject_with_tombstones(
    made: Callable[[Path], AbstractAsyncContextManager[StateStream]], tmp_path: Path
) -> None:
    async with made(tmp_path) as stream:

        async def store(name: str, message: ObjectState | Tombstone, expected: int) -> int:
            wire, subject = (
                messages.encode(message),
                subjects.build_state_subject(TreeLocation(1, TreeKind.CLUSTER), "Pod", "ns", name),
            )
            return await stream.publish(
                subject,
                wire.payload,
                wire.headers,
                expected=expected,
                message_id=f"{name}{expected}",
            )

        def a_pod(name: str, version: str) -> ObjectState:
            return ObjectState(
                kind="Pod",
                namespace="ns",
                name=name,
                uid="u",
                version=version,
                form="1",
                body=b"{}",
            )

        for name in ("old", "changed", "deleted"):
            last = await store(name, a_pod(name, "1"), 0)
        begin = (await stream.identity()).state.last_seq
        assert begin == last
        assert await stream.since(begin + 1) == {}
        again = await store("changed", a_pod("changed", "2"), last - 1)
        again = await store("changed", a_pod("changed", "3"), again)
        await store(
            "deleted", Tombstone(kind="Pod", namespace="ns", name="deleted", version="4"), last
        )
        found = {
            subject.rpartition(".")[2]: entry
            for subject, entry in (await stream.since(begin + 1)).items()
        }
        assert {name: (entry.version, entry.is_gone) for name, entry in found.items()} == {
            "changed": ("3", False),
            "deleted": ("4", True),
        }
        assert found["changed"].sequence == again


async def test_a_marker_that_does_not_decode_is_another_writers(tmp_path: Path) -> None:
    """The undecodable marker is found when our own marker is refused.

    The session then ends, and the next session replaces the marker.
    """
    async with real_stream(tmp_path) as stream:
        headers = messages.encode(Synced(epoch="e", version=1)).headers
        stored = await stream.publish(SUBJECT, b"{", headers, expected=None, message_id="other")
        assert await stream.last(SUBJECT) == StreamEntry(sequence=stored)
