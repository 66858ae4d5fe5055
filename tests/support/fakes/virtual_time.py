"""An event loop in virtual time: time passes only while every task waits, so that minutes of
waiting take no real time.

Tasks, timers, queues and time-outs are asyncio's own; no task may wait for a socket.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final

START: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time; `time` is the number of seconds waited so far."""

    def __init__(self) -> None:
        self._waited = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self._waited

    def skip(self, seconds: float) -> None:
        """Advance the time by some seconds."""
        self._waited += seconds


class _Impatient(selectors.DefaultSelector):
    """Selector that advances the loop's time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout:
            self._loop.skip(timeout)
        return found


class VirtualClock:
    """Implements `common.clock.Clock` in the time of the running event loop."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario)
