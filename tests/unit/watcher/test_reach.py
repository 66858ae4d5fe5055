"""When a leader makes room: soon when its server is silent, later when only the stream is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from common import errors
from watcher.ports import StreamIdentity
from watcher.reach import SERVER_SECONDS, STREAM_SECONDS, Reach

pytestmark = pytest.mark.looptime


class Nats:
    """Implements `watcher.ports.Server`; each question that is not answered takes its time-out."""

    def __init__(self) -> None:
        self.stream: errors.RaybusError | None = None
        """What a question after the stream comes to."""
        self.is_there = True
        self.reconnects: list[str] = []

    async def identity(self) -> StreamIdentity:
        problem = self.stream
        if problem is not None:
            await asyncio.sleep(2.0 if isinstance(problem, errors.Unavailable) else 0.0)
            raise problem
        return StreamIdentity(created="once", last_sequence=1)

    async def is_in_reach(self) -> bool:
        await asyncio.sleep(0.0 if self.is_there else 2.0)
        return self.is_there

    async def reconnect(self, why: str) -> None:
        self.reconnects.append(why)


@asynccontextmanager
async def asked(nats: Nats) -> AsyncGenerator[Reach]:
    reach = Reach(nats)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(reach.run())
        await asyncio.sleep(0.1)
        yield reach
        asking.cancel()


async def until_lost(reach: Reach) -> float:
    for half_seconds in range(120):
        if reach.is_lost:
            return half_seconds / 2
        await asyncio.sleep(0.5)
    raise AssertionError("it is still in reach")


async def test_a_stream_that_answers_can_be_written_to() -> None:
    async with asked(Nats()) as reach:
        await asyncio.sleep(30)
        assert (reach.problem, reach.is_lost) == (None, False)


async def test_nobody_leads_before_the_stream_was_asked() -> None:
    assert Reach(Nats()).problem is not None


async def test_a_server_out_of_reach_is_given_up_soon() -> None:
    nats = Nats()
    async with asked(nats) as reach:
        nats.stream, nats.is_there = errors.Unavailable("no answer"), False
        assert SERVER_SECONDS - 1 < await until_lost(reach) <= SERVER_SECONDS + 0.5
        assert reach.problem == "no answer"


async def test_a_stream_that_elects_its_leader_is_waited_for_longer() -> None:
    nats = Nats()
    async with asked(nats) as reach:
        nats.stream = errors.Unavailable("no answer")
        await asyncio.sleep(8.2)
        assert (reach.problem, reach.is_lost) == ("no answer", False)
        nats.stream = None
        await asyncio.sleep(3)
        assert (reach.problem, reach.is_lost) == (None, False)


async def test_a_stream_that_stays_silent_leads_to_another_connection() -> None:
    nats = Nats()
    async with asked(nats) as reach:
        nats.stream = errors.Unavailable("no answer")
        assert STREAM_SECONDS - 1 < await until_lost(reach) <= STREAM_SECONDS + 0.5
        await asyncio.sleep(5)
        assert len(nats.reconnects) == 1


async def test_a_stream_that_does_not_exist_yet_is_no_reason_to_make_room() -> None:
    nats = Nats()
    async with asked(nats) as reach:
        nats.stream = errors.NotFound("there is no stream RAY_STATE")
        await asyncio.sleep(60)
        assert (reach.problem, reach.is_lost) == ("there is no stream RAY_STATE", False)
