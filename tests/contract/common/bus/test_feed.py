"""Every feed keeps the promises to its listener: the fake feed and a feed on a real NATS server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from itertools import count, product
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
import pytest_asyncio

from common.bus import messages, streams, subjects
from common.bus.feed import NOT_READ, Feed
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.bus.nats import Bus, connect
from common.bus.state_feed import StateFeed
from common.bus.subjects import TreeKind, TreeLocation
from common.settings import Settings
from nats_admin import stream_keeper
from support.fakes.feed import FakeFeed, FakeStream
from support.fakes.listener import Recorder
from support.servers.nats import NatsServer, nats_server
from support.waiting import eventually

FOLLOWED = 3
OTHER = 5


class Writing(Protocol):
    """The stream as its writer uses it."""

    async def store(self, subject: str, message: Message) -> None: ...
    async def mark(self, epoch: str, version: int, partitions: frozenset[int]) -> None: ...
    async def lose(self) -> None: ...
    async def interrupt(self) -> None: ...


class RealStream:
    """A writer on a real server."""

    def __init__(self, bus: Bus, server: NatsServer) -> None:
        self._bus = bus
        self._server = server
        self._ids = count()

    async def store(self, subject: str, message: Message) -> None:
        wire = messages.encode(message)
        await self._bus.session()
        await self._bus.publish(
            subject, wire.payload, wire.headers, expected=None, message_id=f"test-{next(self._ids)}"
        )

    async def mark(self, epoch: str, version: int, partitions: frozenset[int]) -> None:
        for partition, tree in product(sorted(partitions), subjects.MARKED_TREES):
            marker = Synced(epoch=epoch, version=version)
            await self.store(subjects.build_marker_subject(partition, tree), marker)

    async def lose(self) -> None:
        await self._bounce(lose=True)
        await stream_keeper.ensure_streams(self._bus, [streams.build_state_config()])

    async def interrupt(self) -> None:
        await self._bounce(lose=False)

    async def _bounce(self, *, lose: bool) -> None:
        before = await self._bus.session()
        self._server.kill()
        if lose:
            self._server.lose_store()
        await eventually(lambda: before.lost is not None, what="the loss of the connection")
        self._server.start()
        await self._bus.session()


class Setup(msgspec.Struct, frozen=True):
    stream: Writing
    feed: Feed
    recorder: Recorder
    services: Recorder
    """Receives the trees of RayServices and nothing else."""
    jobs: Recorder
    """Receives the trees of RayJobs and nothing else."""

    async def loaded(self) -> None:
        readers = (self.recorder, self.services, self.jobs)
        await eventually(
            lambda: all(reader.is_synced for reader in readers), what="the end of all loads"
        )


@pytest_asyncio.fixture(params=["fake", pytest.param("nats", marks=pytest.mark.integration)])
async def setup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Setup]:
    recorder, services, jobs = Recorder(), Recorder(), Recorder()
    async with AsyncExitStack() as stack:
        if request.param == "fake":
            fake = FakeStream()
            found = Setup(fake, FakeFeed(fake), recorder, services, jobs)
            of_services: Feed = FakeFeed(fake, tree=TreeKind.SERVICE)
            of_jobs: Feed = FakeFeed(fake, tree=TreeKind.JOB)
        else:
            server = stack.enter_context(nats_server(tmp_path))
            bus = await stack.enter_async_context(
                connect(Settings(service="test", nats_url=server.url))
            )
            await bus.session()
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()])
            found = Setup(
                RealStream(bus, server), StateFeed(bus, reader="test"), recorder, services, jobs
            )
            of_services = StateFeed(bus, reader="test-services", tree=TreeKind.SERVICE)
            of_jobs = StateFeed(bus, reader="test-jobs", tree=TreeKind.JOB)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        following = [
            group.create_task(found.feed.follow(FOLLOWED, recorder)),
            group.create_task(of_services.follow(FOLLOWED, services)),
            group.create_task(of_jobs.follow(FOLLOWED, jobs)),
        ]
        await eventually(
            lambda: recorder.reasons and services.reasons and jobs.reasons, what="the first load"
        )
        yield found
        for task in following:
            task.cancel()


def a_pod(name: str = "one", *, version: int = 10) -> ObjectState:
    body = msgspec.json.encode(
        {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version)}}
    )
    return ObjectState(
        kind="Pod", namespace="ns", name=name, uid="u", version=str(version), form="1", body=body
    )


def gone(
    name: str = "one", *, version: int = 11, moved_to: int | TreeLocation | None = None
) -> Tombstone:
    place = TreeLocation(moved_to, TreeKind.SERVICE) if isinstance(moved_to, int) else moved_to
    return Tombstone(kind="Pod", namespace="ns", name=name, version=str(version), moved_to=place)


def under(partition: int, name: str = "one", *, tree: TreeKind = TreeKind.SERVICE) -> str:
    return subjects.build_state_subject(TreeLocation(partition, tree), "Pod", "ns", name)


async def synced(recorder: Recorder) -> None:
    await eventually(lambda: recorder.is_synced, what="the end of the load")


async def test_objects_are_delivered_before_the_snapshot_is_complete(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))

    await synced(setup.recorder)
    assert setup.recorder.names("Pod") == {"one"}
    assert setup.recorder.syncs == [20]
    assert setup.recorder.traces == {("Pod", "ns", "one"): messages.derive_trace("u", "10")}


async def test_a_partition_without_a_marker_is_waited_for(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({OTHER}))
    await eventually(lambda: setup.recorder.names("Pod"), what="the object")
    assert not setup.recorder.is_synced

    await setup.stream.mark("a", 18, frozenset({FOLLOWED}))
    await synced(setup.recorder)
    assert setup.recorder.syncs == [18]


async def test_a_new_epoch_means_a_reload(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await synced(setup.recorder)

    await setup.stream.mark("b", 30, frozenset({FOLLOWED}))

    await eventually(lambda: setup.recorder.syncs == [20, 30], what="the second load")
    assert "epoch b" in setup.recorder.reasons[-1]
    assert setup.recorder.names("Pod") == {"one"}


async def test_the_same_epoch_again_changes_nothing(setup: Setup) -> None:
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await synced(setup.recorder)
    loads = len(setup.recorder.reasons)

    await setup.stream.mark("a", 25, frozenset({FOLLOWED}))
    await setup.stream.store(under(3), a_pod())

    await eventually(lambda: setup.recorder.knows("Pod", "one"), what="the object")
    assert len(setup.recorder.reasons) == loads


async def test_other_partitions_are_none_of_our_business(setup: Setup) -> None:
    await setup.stream.store(under(OTHER, "stranger"), a_pod("stranger"))
    await setup.stream.mark("a", 20, frozenset({FOLLOWED, OTHER}))
    await setup.stream.store(under(3), a_pod())

    await eventually(lambda: setup.recorder.knows("Pod", "one"), what="the object")
    assert setup.recorder.names("Pod") == {"one"}


async def test_a_tombstone_removes(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await synced(setup.recorder)

    await setup.stream.store(under(3), gone(version=21))

    await eventually(
        lambda: setup.recorder.removals == [(("Pod", "ns", "one"), 21)], what="the removal"
    )


async def test_an_object_in_quarantine_is_delivered_with_the_reason(setup: Setup) -> None:
    withheld = Quarantined(
        kind="Pod", namespace="ns", name="one", uid="u", version="10", body=b"{}", why="too large"
    )
    await setup.stream.store(under(3), withheld)
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))

    await synced(setup.recorder)
    assert setup.recorder.quarantine == {("Pod", "ns", "one"): "too large"}


async def test_an_object_that_moves_to_another_owner_is_gone(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await synced(setup.recorder)

    await setup.stream.store(under(3), gone(moved_to=OTHER))

    await eventually(
        lambda: (
            setup.recorder.moves == [(("Pod", "ns", "one"), TreeLocation(OTHER, TreeKind.SERVICE))]
        ),
        what="the move",
    )
    assert setup.recorder.names("Pod") == set()


async def test_a_reader_of_one_kind_of_tree_gets_no_other_but_learns_of_completeness(
    setup: Setup,
) -> None:
    await setup.stream.store(under(3, "alone", tree=TreeKind.CLUSTER), a_pod("alone"))
    await setup.stream.store(under(3, "served"), a_pod("served"))
    await setup.stream.store(under(3, "run", tree=TreeKind.JOB), a_pod("run"))
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))

    await setup.loaded()
    assert setup.recorder.names("Pod") == {"alone", "served", "run"}
    assert setup.services.names("Pod") == {"served"}
    assert setup.jobs.names("Pod") == {"run"}


async def test_an_object_that_leaves_for_a_tree_that_is_not_read_is_gone(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await eventually(
        lambda: setup.recorder.is_synced and setup.services.is_synced, what="the end of both loads"
    )

    await setup.stream.store(under(3, tree=TreeKind.CLUSTER), a_pod())
    await setup.stream.store(under(3), gone(moved_to=TreeLocation(3, TreeKind.CLUSTER)))

    await eventually(
        lambda: (
            setup.services.moves
            == [(("Pod", "ns", "one"), TreeLocation(NOT_READ, TreeKind.CLUSTER))]
        ),
        what="the move",
    )
    assert setup.services.names("Pod") == set()
    await setup.stream.store(under(3, "last"), a_pod("last"))
    await eventually(lambda: setup.recorder.knows("Pod", "last"), what="the last object")
    assert setup.recorder.names("Pod") == {"one", "last"}


async def test_an_interruption_means_a_reload(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await synced(setup.recorder)

    await setup.stream.interrupt()

    await eventually(lambda: len(setup.recorder.syncs) == 2, what="the second load")
    assert setup.recorder.names("Pod") == {"one"}


async def test_nothing_is_decided_on_a_stream_that_was_lost(setup: Setup) -> None:
    await setup.stream.store(under(3), a_pod())
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))
    await synced(setup.recorder)

    await setup.stream.lose()
    await eventually(lambda: not setup.recorder.is_synced, what="a stale reader")
    await setup.stream.store(under(3), a_pod())
    await eventually(lambda: setup.recorder.names("Pod"), what="the object")
    assert not setup.recorder.is_synced

    await setup.stream.mark("b", 30, frozenset({FOLLOWED}))
    await synced(setup.recorder)
    assert setup.recorder.syncs == [20, 30]


async def test_a_large_object_is_compressed_on_the_way(setup: Setup) -> None:
    large = msgspec.json.encode(
        {"metadata": {"namespace": "ns", "name": "large"}, "ballast": "x" * 1_500_000}
    )
    state = ObjectState(
        kind="Pod", namespace="ns", name="large", uid="u", version="1", form="1", body=large
    )

    await setup.stream.store(under(3, "large"), state)
    await setup.stream.mark("a", 20, frozenset({FOLLOWED}))

    await synced(setup.recorder)
    assert len(setup.recorder.objects["Pod", "ns", "large"]["ballast"]) == 1_500_000
