"""Clocks. Only this module reads the time; all other code takes `now` as an argument."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

log = structlog.get_logger()

TOLERANCE: Final = timedelta(seconds=2)
HALF_SECOND: Final = timedelta(seconds=0.5)
JUMP: Final = timedelta(seconds=5)
"""Minimum change of the difference between wall clock and monotonic clock that counts as a jump.

A smaller change means that the wall clock was corrected gradually (slewed)."""


class Clock(Protocol):
    """Provides the wall-clock time, for stored values, and monotonic seconds, for waits."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""
        ...


def steady() -> float:
    """Return monotonic seconds that also count while the machine sleeps, read from the kernel.

    The event loop's time does not suffice: it is that of the loop's last iteration, which may be
    long ago if the process was frozen.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Silence:
    """Measures for how long another party has not answered, while this process could listen.

    A process that was frozen for some seconds may find unread answers in its sockets. The time
    between two calls of `seconds()` therefore counts as at most `longest_gap`. To measure the real
    time, call it at least every `longest_gap` seconds.
    """

    def __init__(self, *, longest_gap: float, clock: Callable[[], float] = steady) -> None:
        self._longest_gap = longest_gap
        self._clock = clock
        self.end()

    def end(self) -> None:
        """Record that the other party has answered; the seconds of silence begin again at 0."""
        self._seconds, self._asked_at = 0.0, self._clock()

    def seconds(self) -> float:
        """Return the seconds since the last answer, minus the time that this process was frozen."""
        now = self._clock()
        self._seconds += min(now - self._asked_at, self._longest_gap)
        self._asked_at = now
        return self._seconds


class SystemClock:
    """The machine's clock. Its monotonic time is the event loop's, which tests can speed up."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  (this module is the exception)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class ServerClock(SystemClock):
    """The API server's clock, estimated from its answers, so that all replicas use the same time.

    The `Date` header has whole seconds and was written at an unknown moment of the round trip. So
    an answer only bounds the difference between the clocks; a slow answer gives wide bounds. This
    clock is corrected only if it is more than `TOLERANCE` outside of the bounds.
    """

    def __init__(self) -> None:
        self._offset = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self._offset

    def learn(self, date: datetime, round_trip: float) -> None:
        """Correct this clock by the `Date` header of an answer that just arrived.

        `round_trip` is the time between request and answer, in seconds.
        """
        uncertain = timedelta(seconds=max(round_trip, 0.0) / 2)
        ahead = date + HALF_SECOND + uncertain - self.now()
        if abs(ahead) > TOLERANCE + uncertain:
            self._offset += ahead
            log.warning(
                "clock differs from the API server's",
                seconds=self._offset.total_seconds(),
            )


class ClockWatch:
    """Detects that the wall clock was set, so that the jump does not count as elapsed time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at: datetime | None = None
        self._set_at: datetime | None = None

    def set_at(self) -> datetime | None:
        """Return the time to which the clock was last set; None if this process saw no change."""
        now = self._clock.now()
        began_at = now - timedelta(seconds=self._clock.monotonic())
        if self._began_at is not None and abs(began_at - self._began_at) > JUMP:
            self._set_at = now
        self._began_at = began_at
        return self._set_at
