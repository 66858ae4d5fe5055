"""The emergency procedures of docs/nats.md, run as the users that the page names.

They are a backup and its restoration, the deletion of a stream, and a keeper that waits.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.bus import streams
from common.bus.nats import Bus, connect
from common.bus.session import Incoming, parse_status
from nats_admin import event_streams, stream_keeper
from support.servers.relayed import Secured, secured_nats
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]

EVENT = "ray.events.ns.svc.started"


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncGenerator[Secured]:
    async with secured_nats(tmp_path) as running:
        yield running


@asynccontextmanager
async def kept(secured: Secured) -> AsyncGenerator[None]:
    """Maintain the streams as the container beside a server does."""
    async with connect(secured.settings("keeper")) as keeper, asyncio.TaskGroup() as group:
        keeping = group.create_task(
            stream_keeper.keep_streams(
                keeper, [streams.build_state_config(), event_streams.build_stream_config()]
            )
        )
        await eventually_true(lambda: has(keeper, "RAY_EVENTS"), within=10.0, every=0.05)
        yield
        keeping.cancel()


async def has(bus: Bus, stream: str) -> bool:
    await bus.session()
    try:
        await bus.stream(stream)
    except errors.NotFound:
        return False
    return True


class Backup(msgspec.Struct):
    """What `nats stream backup` writes into a folder."""

    config: dict[str, Any]
    state: dict[str, Any]
    chunks: list[bytes]


async def save(bus: Bus, stream: str) -> Backup:
    """Back a stream up as `nats stream backup` does."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    session = bus.current
    inbox = f"{session.inbox}.backup"

    async def receive(message: Incoming) -> None:
        chunks.put_nowait(message.data)
        if message.reply:
            await session.publish(message.reply)

    end = await session.listen(inbox, receive)
    answer = await bus.api(
        f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, "chunk_size": 65536}, dict[str, Any]
    )
    backup = Backup(config=answer["config"], state=answer["state"], chunks=[])
    async with asyncio.timeout(10.0):
        while chunk := await chunks.get():
            backup.chunks.append(chunk)
    await end()
    return backup


async def bring_back(bus: Bus, backup: Backup) -> None:
    """Restore a stream as `nats stream restore` does."""
    name = backup.config["name"]
    request = {"config": backup.config, "state": backup.state}
    where = (await bus.api(f"STREAM.RESTORE.{name}", request, dict[str, Any]))["deliver_subject"]
    for chunk in [*backup.chunks, b""]:
        await bus.current.request(where, chunk, read=parse_status)


async def delete(bus: Bus, stream: str) -> None:
    await bus.api(f"STREAM.DELETE.{stream}", None, dict[str, Any])


async def test_a_backup_of_the_events_comes_back_after_the_stream_was_lost(
    secured: Secured,
) -> None:
    async with kept(secured), connect(secured.settings("administrator")) as administrator:
        async with connect(secured.settings("service-reconciler")) as service:
            await service.session()
            await service.publish(
                EVENT, b'{"specversion":"1.0"}', {}, expected=None, message_id="event-1"
            )
        session = await administrator.session()
        backup = await save(administrator, "RAY_EVENTS")

        await session.client.publish("ray.recovery", b"60")
        await delete(administrator, "RAY_EVENTS")
        await asyncio.sleep(2.5)  # longer than a keeper needs to make a stream
        assert not await has(administrator, "RAY_EVENTS")
        await bring_back(administrator, backup)

        assert (await administrator.stream("RAY_EVENTS")).state.messages == 1
        await session.client.publish("ray.recovery", b"0")


async def test_a_deleted_stream_is_made_again_by_the_keeper(secured: Secured) -> None:
    async with kept(secured), connect(secured.settings("administrator")) as administrator:
        await administrator.session()
        created = (await administrator.stream("RAY_STATE")).created
        await delete(administrator, "RAY_STATE")

        async def is_new() -> bool:
            return (
                await has(administrator, "RAY_STATE")
                and (await administrator.stream("RAY_STATE")).created != created
            )

        await eventually_true(is_new, within=10.0, every=0.1)


@pytest.mark.parametrize("user", ["watcher", "service-reconciler", "keeper", "provisioner"])
async def test_nobody_else_saves_deletes_or_brings_back_a_stream(
    secured: Secured, user: str
) -> None:
    async with kept(secured), connect(secured.settings(user)) as bus:
        await bus.session()
        for verb in ("SNAPSHOT", "DELETE", "RESTORE"):
            with pytest.raises(errors.Unavailable, match="may not publish"):
                await bus.api(f"STREAM.{verb}.RAY_EVENTS", None, dict[str, Any])
