"""Protection of tasks against stray cancellations.

A cancelled task ends silently, and its TaskGroup does not notice. A library may cancel a future
that several tasks share, so a task can be cancelled although nobody requested it. `is_stray`
recognises such a cancellation, and `survive_stray_cancellation` lets a loop survive it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

log = structlog.get_logger()


def is_stray() -> bool:
    """Return whether nobody requested the cancellation of the current task.

    Call it where `CancelledError` was caught.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


@asynccontextmanager
async def survive_stray_cancellation(task: str) -> AsyncGenerator[None]:
    """Suppress a cancellation of the block that nobody requested.

    An endless loop then continues with its next iteration. `task` names the loop in the log.
    """
    try:
        yield
    except asyncio.CancelledError:
        if not is_stray():
            raise
        # `error` and not `exception`: a traceback would not show who cancelled the task.
        log.error("stray cancellation ignored; task continues", task=task)  # noqa: TRY400
        await asyncio.sleep(0)
