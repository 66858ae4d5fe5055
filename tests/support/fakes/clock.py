"""A clock that a test moves forward."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Clock that stands still until a test advances it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Advance the time by some seconds."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds

    def jump(self, by: timedelta) -> None:
        """Set the wall clock forward or back; monotonic time does not change."""
        self._now += by
