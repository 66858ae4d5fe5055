"""The only place that asks what time it is; everything else takes `now`."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for what is written down, monotonic seconds for what is waited for."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...


class SystemClock:
    """The machine's clock; monotonic time is the event loop's, so tests may run it fast."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251  (this is the clock that the rule points at)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()
