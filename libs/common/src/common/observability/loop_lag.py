"""Measures how long the event loop is blocked: a timer that fires late was held up by whatever ran before it."""

import asyncio
from typing import Final

from common.observability.metrics import EVENT_LOOP_LAG

PERIOD_SECONDS: Final = 0.1


def measure(loop: asyncio.AbstractEventLoop) -> None:
    """Observe the lag of a loop every `PERIOD_SECONDS`, until the loop is closed."""

    def tick(due: float) -> None:
        now = loop.time()
        EVENT_LOOP_LAG.observe(max(0.0, now - due))
        loop.call_at(now + PERIOD_SECONDS, tick, now + PERIOD_SECONDS)

    tick(loop.time())
