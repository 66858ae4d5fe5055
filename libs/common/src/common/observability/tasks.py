"""Cancellations that nobody asked for.

A cancelled task ends silently, and its group takes no notice. Libraries cancel what they share: a cancellation without a request can
reach a task through what it awaits. `is_stray` recognises such a cancellation, and a loop that must run on survives it in `outlived`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

log = structlog.get_logger()


def is_stray() -> bool:
    """Return, where `CancelledError` was caught, whether the current task was not cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


@asynccontextmanager
async def outlived(task: str) -> AsyncGenerator[None]:
    """End a block, and no more, when a stray cancellation meets it; for each turn of a loop that runs until its task is cancelled."""
    try:
        yield
    except asyncio.CancelledError:
        if not is_stray():
            raise
        log.error("a task was cancelled that must run on; it continues", task=task)  # noqa: TRY400  (no failure of ours)
        await asyncio.sleep(0)
