"""When a leader gives up its Lease: soon if its server is silent, later if only the stream is."""

import asyncio

import pytest

from common import errors
from unit.watcher.a_nats import Nats, asked
from watcher.adapters.lease import SERVER_TIMEOUT, STREAM_TIMEOUT, ReachCheck

pytestmark = pytest.mark.looptime


async def until_lost(reach: ReachCheck) -> float:
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
    assert ReachCheck(Nats()).problem is not None


async def test_an_unreachable_server_times_out_soon() -> None:
    nats = Nats()
    async with asked(nats) as reach:
        nats.stream, nats.is_there = errors.Unavailable("no answer"), False
        assert SERVER_TIMEOUT - 1 < await until_lost(reach) <= SERVER_TIMEOUT + 0.5
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
        assert STREAM_TIMEOUT - 1 < await until_lost(reach) <= STREAM_TIMEOUT + 0.5
        await asyncio.sleep(5)
        assert len(nats.reconnects) == 1


async def test_what_a_process_without_a_processor_did_not_read_is_no_silence() -> None:
    """The process did not run for as long as a server may be silent, and the answer is waiting in
    the socket.
    """
    nats = Nats()
    async with asked(nats) as reach:
        assert not reach.is_lost
        nats.stream, nats.takes = errors.Unavailable("no answer within 2 s"), STREAM_TIMEOUT + 1
        await asyncio.sleep(nats.takes)
        nats.stream, nats.takes = None, 2.0
        assert not reach.is_lost
        await asyncio.sleep(5)
        assert (reach.problem, reach.is_lost, nats.reconnects) == (None, False, [])


async def test_a_stream_that_does_not_exist_yet_is_no_reason_to_make_room() -> None:
    nats = Nats()
    async with asked(nats) as reach:
        nats.stream = errors.NotFound("there is no stream RAY_STATE")
        await asyncio.sleep(60)
        assert (reach.problem, reach.is_lost) == ("there is no stream RAY_STATE", False)
