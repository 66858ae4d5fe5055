"""The only place that asks what time it is; everything else takes `now`."""

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
"""A larger difference between two reads is a clock that was set, not slewed."""


class Clock(Protocol):
    """Wall-clock time for what is written down, monotonic seconds for what is waited for."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...


def steady() -> float:
    """Return seconds that never go back, counted on while the machine sleeps, and asked of the kernel at this moment.

    The time of an event loop is that of its last turn, which may be long ago in a process that was frozen.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Silence:
    """How long another party has been silent, as far as this process was there to listen.

    A process that got no processor for some seconds finds answers in its sockets that it has not read yet. So of the time between
    two questions to this object at most `longest_gap` seconds count: whoever waits asks more often than that.
    """

    def __init__(self, *, longest_gap: float, clock: Callable[[], float] = steady) -> None:
        self._longest_gap = longest_gap
        self._clock = clock
        self.end()

    def end(self) -> None:
        """Record that the other party has answered."""
        self._seconds, self._asked_at = 0.0, self._clock()

    def seconds(self) -> float:
        """Return for how many seconds nothing was heard."""
        now = self._clock()
        self._seconds += min(now - self._asked_at, self._longest_gap)
        self._asked_at = now
        return self._seconds


class SystemClock:
    """The machine's clock; monotonic time is the event loop's, so tests may run it fast."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  (this is the clock that the rule points at)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class ServerClock(SystemClock):
    """The API server's clock, as its answers show it: all replicas write and judge moments by one clock.

    The `Date` of an answer has whole seconds, and was written at an unknown moment of the round trip. So an answer bounds the
    difference of the clocks, and corrects ours only where ours is `TOLERANCE` outside of the bounds: an answer that was long under
    way corrects a clock that is wrong by more than that time, and no other.
    """

    def __init__(self) -> None:
        self._offset = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self._offset

    def learn(self, date: datetime, round_trip: float) -> None:
        """Correct this clock by the date of an answer that has just come, `round_trip` seconds after its request was sent."""
        uncertain = timedelta(seconds=max(round_trip, 0.0) / 2)
        ahead = date + HALF_SECOND + uncertain - self.now()
        if abs(ahead) > TOLERANCE + uncertain:
            self._offset += ahead
            log.warning(
                "this machine's clock differs from the API server's",
                seconds=self._offset.total_seconds(),
            )


class ClockWatch:
    """Detects that the wall clock was set, so that the difference does not count as time that has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at: datetime | None = None
        self._set_at: datetime | None = None

    def set_at(self) -> datetime | None:
        """Return when the clock was last set, in its present time; None when this process has seen no change."""
        now = self._clock.now()
        began_at = now - timedelta(seconds=self._clock.monotonic())
        if self._began_at is not None and abs(began_at - self._began_at) > JUMP:
            self._set_at = now
        self._began_at = began_at
        return self._set_at
