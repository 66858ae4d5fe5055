"""Reads that no reconcile waits for, such as the metrics of nodes that may not answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

import structlog

from common.observability import tasks

log = structlog.get_logger()


class Background:
    """The tasks of such reads, which end with the process; one that is `idle` reads nothing, for observers that only report."""

    def __init__(self, *, idle: bool = False) -> None:
        self._is_idle = idle
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> NoReturn:
        """Let reads go on until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                while True:
                    async with tasks.outlived("background reads"):
                        await asyncio.Event().wait()
        finally:
            self._group = None

    async def start(self, read: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a read; where `run` does not run, end it first and return None. What it raises is logged: it is not worth the process."""
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
        log.exception("a read in the background failed by our own fault", error=repr(problem))
