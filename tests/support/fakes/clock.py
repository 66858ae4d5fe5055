"""A clock that a test moves."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    """Stands still until a test advances it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds

    def jump(self, by: timedelta) -> None:
        """Set the clock on the wall; no time passes."""
        self._now += by
