"""A reader's handling of sync markers on a real server.

A marker must be renewed, have the reader's number of partitions, and belong to one history.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from common.bus import messages, state_feed, streams, subjects
from common.bus.messages import Synced
from common.bus.nats import Bus, connect
from common.bus.state_feed import StateFeed
from common.settings import Settings
from nats_admin import stream_keeper
from support.fakes.listener import Recorder
from support.servers.nats import nats_server
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

NUMBER = count()


async def mark(bus: Bus, marker: Synced, *, partition: int = 3) -> None:
    wire = messages.encode(marker)
    await bus.publish(
        subjects.build_marker_subject(partition),
        wire.payload,
        wire.headers,
        expected=None,
        message_id=f"m-{next(NUMBER)}",
    )


@asynccontextmanager
async def reading(folder: Path, marker: Synced) -> AsyncGenerator[tuple[Bus, StateFeed, Recorder]]:
    with nats_server(folder) as server:
        async with (
            connect(Settings(service="test", nats_url=server.url)) as bus,
            asyncio.TaskGroup() as group,
        ):
            await bus.session()
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()])
            await mark(bus, marker)
            feed, recorder = StateFeed(bus, reader="test"), Recorder()
            following = group.create_task(feed.follow(3, recorder))
            yield bus, feed, recorder
            following.cancel()


async def test_nobody_decides_on_a_state_that_the_watcher_no_longer_confirms(
    tmp_path: Path,
) -> None:
    marker = Synced(epoch="e", version=5, renewed=0.1)
    async with reading(tmp_path, marker) as (bus, _, recorder):
        await eventually(lambda: recorder.is_synced, what="the load")
        for _ in range(10):  # as long as it is renewed, nothing is loaded again
            await asyncio.sleep(0.1)
            await mark(bus, marker)
        assert (recorder.is_synced, recorder.reasons) == (True, ["started"])

        await eventually(lambda: not recorder.is_synced, what="the end of trust")
        assert "has not confirmed the state" in recorder.reasons[-1]
        await asyncio.sleep(0.5)
        assert not recorder.is_synced

        await mark(bus, marker)
        await eventually(lambda: recorder.is_synced, what="the next load")


async def test_the_marker_of_the_first_partition_confirms_the_others(tmp_path: Path) -> None:
    marker = Synced(epoch="e", version=5, renewed=0.1)
    async with (
        reading(tmp_path, Synced(epoch="e", version=5)) as (bus, feed, recorder),
        asyncio.TaskGroup() as group,
    ):
        await mark(bus, marker, partition=0)
        checking = group.create_task(feed.check_forms())
        await eventually(feed.forms_checked.is_set, what="a confirmation")
        for _ in range(10):
            await asyncio.sleep(0.1)
            await mark(bus, marker, partition=0)
        assert (recorder.is_synced, recorder.reasons) == (True, ["started"])

        await eventually(lambda: not recorder.is_synced, what="the end of trust")
        await mark(bus, marker, partition=0)
        await eventually(lambda: recorder.is_synced, what="the next load")
        checking.cancel()


async def test_a_watcher_of_an_earlier_release_need_not_confirm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_feed, "MISSED", 0.0)
    async with reading(tmp_path, Synced(epoch="e", version=5)) as (_, _, recorder):
        await eventually(lambda: recorder.is_synced, what="the load")
        await asyncio.sleep(0.3)
        assert (recorder.is_synced, recorder.reasons) == (True, ["started"])


async def test_nobody_decides_on_a_state_that_is_divided_otherwise(tmp_path: Path) -> None:
    async with reading(tmp_path, Synced(epoch="e", version=5, partitions=128)) as (
        _,
        feed,
        recorder,
    ):
        await eventually(lambda: feed.problem is not None, what="the reason")
        assert feed.problem == (
            "the watcher divides into 128 partitions, this release into 64: run all services in one version"
        )
        assert recorder.syncs == []


async def test_versions_that_began_again_make_a_reader_forget_and_load(tmp_path: Path) -> None:
    async with reading(tmp_path, Synced(epoch="e", version=500)) as (bus, _, recorder):
        await eventually(lambda: recorder.is_synced, what="the load")
        assert recorder.rewinds == 0

        await mark(bus, Synced(epoch="f", version=90, history="f"))
        await eventually(lambda: recorder.syncs == [500, 90], what="the next load")
        assert recorder.rewinds == 1
        await mark(bus, Synced(epoch="f", version=95, history="f"))
        await asyncio.sleep(0.2)
        assert (recorder.rewinds, recorder.is_synced) == (1, True)
