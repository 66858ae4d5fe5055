"""Background reads that no reconcile waits for, such as metrics of nodes that may not answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

import structlog

from common.observability import tasks

log = structlog.get_logger()


class Background:
    """Runs background reads until the process ends; with `idle` (a read-only observer) none."""

    def __init__(self, *, idle: bool = False) -> None:
        self._is_idle = idle
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> NoReturn:
        """Accept reads from `start` and run them in the background, until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    async with tasks.survive_stray_cancellation("background reads"):
                        await asyncio.Event().wait()
        finally:
            self._group = None

    async def start(self, read: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a read; its errors are only logged, since they must not stop the process.

        Return the task of the read. If `run` is not running, wait for the read and return None. An
        `idle` object discards the read.
        """
        if self._is_idle:
            read.close()
            return None
        if self._group is None:
            await _logged(read)
            return None
        return self._group.create_task(_logged(read))


async def _logged(read: Coroutine[Any, Any, None]) -> None:
    try:
        await read
    except Exception as problem:
        log.exception("background read failed: internal error", error=repr(problem))
