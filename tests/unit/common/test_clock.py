"""A clock that is set is noticed, one that is slewed is not; replicas on machines with different
clocks judge times in the same way.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from common.clock import HALF_SECOND, TOLERANCE, ClockWatch, ServerClock, Silence
from common.kube.client import KubeClient
from common.kube.resources import LEASE
from common.kube.rest_config import RestConfig
from support.fakes.clock import FakeClock
from support.servers.loopback import served


@pytest.mark.parametrize("by", [timedelta(hours=1), timedelta(hours=-1), timedelta(seconds=6)])
def test_a_jump_of_the_clock_is_noticed(by: timedelta) -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)
    assert watch.set_at() is None
    clock.advance(30)
    clock.jump(by)
    noticed = clock.now()
    assert watch.set_at() == noticed
    clock.advance(30)
    assert watch.set_at() == noticed


def test_small_corrections_are_no_jump_however_many() -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)
    for _ in range(10):
        clock.advance(60)
        clock.jump(timedelta(seconds=4))
        assert watch.set_at() is None


@pytest.mark.parametrize(
    "skew", [timedelta(minutes=5), timedelta(minutes=-5), timedelta(seconds=3)]
)
def test_a_machine_with_a_wrong_clock_uses_the_time_of_the_api_server(skew: timedelta) -> None:
    clock, server = ServerClock(), ServerClock()
    clock.learn(server.now() + skew, 0.0)
    assert abs(clock.now() - (server.now() + skew)) < TOLERANCE


def test_the_whole_seconds_of_a_date_move_no_clock() -> None:
    clock = ServerClock()
    clock.learn(clock.now().replace(microsecond=0), 0.0)
    clock.learn(clock.now() - TOLERANCE + HALF_SECOND, 0.0)
    assert abs(clock.now() - ServerClock().now()) < timedelta(seconds=0.1)


@pytest.mark.parametrize("seconds", [3, 7, 600])
@pytest.mark.parametrize("is_late", [True, False])
def test_an_answer_that_was_long_under_way_moves_no_clock_that_is_right(
    seconds: int, *, is_late: bool
) -> None:
    """The server wrote the date when the request was sent and this process was suspended
    afterwards, or it wrote it just before the answer arrived.
    """
    clock = ServerClock()
    written_at = clock.now() - timedelta(seconds=seconds if is_late else 0)
    clock.learn(written_at.replace(microsecond=0), float(seconds))
    assert abs(clock.now() - ServerClock().now()) < timedelta(seconds=0.1)


@pytest.mark.parametrize(
    "skew", [timedelta(minutes=5), timedelta(minutes=-5), timedelta(seconds=15)]
)
def test_where_every_answer_is_long_under_way_the_clock_is_right_to_within_the_round_trip(
    skew: timedelta,
) -> None:
    clock, server = ServerClock(), ServerClock()
    for seconds in (10, 8, 9):
        clock.learn(server.now() + skew - timedelta(seconds=seconds), float(seconds))
        assert abs(clock.now() - (server.now() + skew)) < TOLERANCE + timedelta(seconds=seconds)
    clock.learn(server.now() + skew, 0.0)
    assert abs(clock.now() - (server.now() + skew)) < TOLERANCE + HALF_SECOND


async def test_the_round_trip_of_an_answer_is_measured() -> None:
    learned: list[tuple[datetime, float]] = []
    date = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

    async def handler(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.json_response({}, headers={"Date": format_datetime(date, usegmt=True)})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    async with served(app) as port:
        kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        kube.learn_date = lambda at, round_trip: learned.append((at, round_trip))
        await kube.get(LEASE, "ns", "a")
        await kube.close()
    [(at, round_trip)] = learned
    assert at == date
    assert 0.3 <= round_trip < 5


def test_a_clock_that_was_corrected_counts_as_set() -> None:
    clock = ServerClock()
    asyncio_clock = FakeClock()

    class Watched(FakeClock):
        def now(self) -> datetime:
            return clock.now()

        def monotonic(self) -> float:
            return asyncio_clock.monotonic()

    watch = ClockWatch(Watched())
    watch.set_at()
    clock.learn(clock.now() + timedelta(minutes=5), 0.0)
    assert watch.set_at() is not None


def test_time_in_which_this_process_did_not_run_is_no_silence() -> None:
    clock = FakeClock()
    silence = Silence(longest_gap=1.0, clock=clock.monotonic)
    for _ in range(3):
        clock.advance(0.5)
        assert silence.seconds() <= 1.5
    assert silence.seconds() == 1.5
    clock.advance(60)
    assert silence.seconds() == 2.5
    silence.end()
    assert silence.seconds() == 0.0
