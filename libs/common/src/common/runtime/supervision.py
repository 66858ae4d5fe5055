"""Keeps tasks running that must never end.

A cancelled task ends silently, and its group takes no notice. Libraries cancel what they share: a cancellation without a
request can reach a task through what it awaits. `keep` runs such work again; `is_stray` recognises such a cancellation.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

log = structlog.get_logger()


def is_stray() -> bool:
    """Return, where `CancelledError` was caught, whether the current task was not cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


async def keep(name: str, work: Callable[[], Awaitable[None]]) -> NoReturn:
    """Run `work` until the current task is cancelled, again whenever it ends otherwise; an exception passes."""
    while True:
        try:
            await work()
        except asyncio.CancelledError:
            if not is_stray():
                raise
        log.error("a task ended that must run on; it is started again", task=name)
        await asyncio.sleep(0)
