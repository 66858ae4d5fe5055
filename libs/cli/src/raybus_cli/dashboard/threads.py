"""Threads that compute for the event loop; namespaces take turns.

An answer about one tenant's objects may cost seconds of a processor, and the event loop serves all
users. One namespace occupies at most one thread, and the others come before its next computation.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
ALL: Final = ""
"""Stands for a computation about objects of all namespaces."""


class FairThreads:
    """Runs functions, each for a namespace."""

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="dashboard")
        self._idle = count
        self._busy: set[str] = set()
        """The namespaces that a thread computes for."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By namespace; the one that has been served last is the last."""

    async def run(self, namespace: str, function: Callable[[], T]) -> T:
        """Return the result of a function, which may not change what the event loop reads."""
        await self._take_turn(namespace)
        try:
            running = self._executor.submit(function)
        except BaseException:
            self._end_turn(namespace)
            raise
        # A thread cannot be stopped: its turn ends with the function, also for a caller that left.
        loop = asyncio.get_running_loop()
        running.add_done_callback(
            lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._end_turn, namespace)
        )
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Begin no further computation."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _take_turn(self, namespace: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it began as its caller left
                self._end_turn(namespace)
            raise

    def _end_turn(self, namespace: str) -> None:
        self._busy.discard(namespace)
        self._idle += 1
        self._start_next()

    def _start_next(self) -> None:
        """Give each idle thread to the namespace that waits for the longest time."""
        while self._idle and (free := self._next_namespace()) is not None:
            queue = self._waiting.pop(free)
            turn = queue.popleft()
            if queue:
                self._waiting[free] = queue
            if not turn.done():
                self._busy.add(free)
                self._idle -= 1
                turn.set_result(None)

    def _next_namespace(self) -> str | None:
        return next((each for each in self._waiting if each not in self._busy), None)
