"""A clock that is set is noticed, one that is slewed is not."""

from datetime import timedelta

import pytest

from common.runtime.clock import ClockWatch
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
