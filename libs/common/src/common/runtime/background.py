"""Reads that no reconcile waits for, such as the metrics of nodes that may not answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn

from common.observability import tasks


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
        """Start a read, which raises nothing; where `run` does not run, end it first and return None."""
        if self._is_idle:
            read.close()
            return None
        if self._group is None:
            await read
            return None
        return self._group.create_task(read)
