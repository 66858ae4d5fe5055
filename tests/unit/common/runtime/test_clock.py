"""A clock that is set is noticed, one that is slewed is not; replicas on machines with other clocks judge moments alike."""

from datetime import datetime, timedelta

import pytest

from common.runtime.clock import HALF_SECOND, TOLERANCE, ClockWatch, ServerClock
from support.fakes.clock import FakeClock


@pytest.mark.parametrize("by", [timedelta(hours=1), timedelta(hours=-1), timedelta(seconds=6)])
def test_a_jump_is_noticed_as_the_clock_tells_it(by: timedelta) -> None:
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


@pytest.mark.parametrize("skew", [timedelta(minutes=5), timedelta(minutes=-5), timedelta(seconds=3)])
def test_a_machine_whose_clock_is_wrong_tells_the_time_of_the_api_server(skew: timedelta) -> None:
    clock, server = ServerClock(), ServerClock()
    clock.learn(server.now() + skew)
    assert abs(clock.now() - (server.now() + skew)) < TOLERANCE


def test_the_whole_seconds_of_a_date_move_no_clock() -> None:
    clock = ServerClock()
    clock.learn(clock.now().replace(microsecond=0))
    clock.learn(clock.now() - TOLERANCE + HALF_SECOND)
    assert abs(clock.now() - ServerClock().now()) < timedelta(seconds=0.1)


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
    clock.learn(clock.now() + timedelta(minutes=5))
    assert watch.set_at() is not None
