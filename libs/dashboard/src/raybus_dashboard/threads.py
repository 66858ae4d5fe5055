"""Runs computations for the event loop in threads; namespaces take turns.

A response about one tenant's objects may take seconds of processor time, and the event loop serves
all users. A namespace occupies at most one thread, and other namespaces come before its next
computation.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
ALL: Final = ""
"""Key for computations about objects of all namespaces."""


class FairThreads:
    """A thread pool in which namespaces take turns; each has at most one running function."""

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="dashboard")
        self._idle = count
        self._busy: set[str] = set()
        """Namespaces whose function is running."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting functions by namespace; the namespace that was served last is last."""

    async def run(self, namespace: str, function: Callable[[], T]) -> T:
        """Run a function in a thread and return its result.

        The function must not change what the event loop reads.
        """
        await self._take_turn(namespace)
        try:
            running = self._executor.submit(function)
        except BaseException:
            self._end_turn(namespace)
            raise
        # A thread cannot be stopped, so its turn ends with the function even if the caller was
        # cancelled.
        loop = asyncio.get_running_loop()
        running.add_done_callback(
            lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._end_turn, namespace)
        )
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Prevent further functions from starting."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _take_turn(self, namespace: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._start_next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn began while its caller was cancelled
                self._end_turn(namespace)
            raise

    def _end_turn(self, namespace: str) -> None:
        self._busy.discard(namespace)
        self._idle += 1
        self._start_next()

    def _start_next(self) -> None:
        """Give each idle thread to the namespace that has waited longest."""
        while self._idle and (free := self._choose_namespace()) is not None:
            queue = self._waiting.pop(free)
            turn = queue.popleft()
            if queue:
                self._waiting[free] = queue
            if not turn.done():
                self._busy.add(free)
                self._idle -= 1
                turn.set_result(None)

    def _choose_namespace(self) -> str | None:
        return next((namespace for namespace in self._waiting if namespace not in self._busy), None)
