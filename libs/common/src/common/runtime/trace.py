"""The trace of a reconcile: the traceparent of the newest message that enqueued its key.

A reconcile that a timer enqueues continues the trace of the last change, since it still works on that change. While spans are taken,
each change that enqueued a key records how long it waited for the reconcile.
"""

from collections.abc import Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from common.observability import tracing

MOST_WAITING: Final = 64
"""Changes of one key that record their wait; a key may be enqueued a thousand times before its reconcile."""
CURRENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The W3C traceparent of the running reconcile, empty outside of one and where no message had one."""


@contextmanager
def bound(trace: str) -> Generator[None]:
    """Let a block, and what it starts, run under a trace."""
    token = CURRENT.set(trace)
    try:
        yield
    finally:
        CURRENT.reset(token)


class ReconcileTraces:
    """The changes that enqueued each key."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, str] = {}
        self._waiting: dict[Hashable, list[tuple[str, int]]] = {}
        """While spans are taken: the changes since the last reconcile, each with its time."""

    def enqueued(self, key: Hashable, trace: str, *, waits: bool) -> None:
        """Remember a change, unless its trace is empty. `waits` for a change of a complete state, not for one of a load."""
        if not trace:
            return
        self._newest[key] = trace
        if waits and tracing.is_on() and len(waiting := self._waiting.setdefault(key, [])) < MOST_WAITING:
            waiting.append((trace, tracing.now()))

    def forget(self, key: Hashable) -> None:
        """Drop a key that another replica reconciles, or that is gone."""
        self._newest.pop(key, None)
        self._waiting.pop(key, None)

    @contextmanager
    def reconciling(self, key: Hashable) -> Generator[None]:
        """Run a reconcile under the newest change's trace."""
        newest = self._newest.get(key, "")
        for trace, since in self._waiting.pop(key, ()):
            tracing.child("queue", trace, since, object=str(key))
        with bound(newest), tracing.around("reconcile", newest, object=str(key)):
            yield
