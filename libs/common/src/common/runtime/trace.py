"""Which change a look is about: the traceparent of the newest message that woke its key.

A look that a timer wakes goes on with the trace of the last change, since that is what it still works on. While spans are taken,
each change that woke a key tells how long it waited for the look.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Generic, TypeVar

from common.observability import tracing

K = TypeVar("K")

MOST_WAITING: Final = 64
"""Changes of one key whose wait is told; a key may be woken a thousand times before it is looked at."""
_CURRENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")


def current() -> str:
    """Return the W3C traceparent of the look that runs, empty outside of one and where no message had one."""
    return _CURRENT.get()


@contextmanager
def bound(trace: str) -> Generator[None]:
    """Let a block, and what it starts, run under a trace."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class Wakers(Generic[K]):
    """The changes that woke each key."""

    def __init__(self) -> None:
        self._newest: dict[K, str] = {}
        self._waiting: dict[K, list[tuple[str, int]]] = {}
        """While spans are taken: the changes since the last look, each with when it came."""

    def woken(self, key: K, trace: str, *, waits: bool) -> None:
        """Take note of a change; none has an empty trace. `waits` when it is news, and not one of a load."""
        if not trace:
            return
        self._newest[key] = trace
        if waits and tracing.is_on():
            waiting = self._waiting.setdefault(key, [])
            if len(waiting) < MOST_WAITING:
                waiting.append((trace, tracing.now()))

    def forget(self, key: K) -> None:
        """Drop a key that somebody else looks after, or that is gone."""
        self._newest.pop(key, None)
        self._waiting.pop(key, None)

    @contextmanager
    def look(self, key: K) -> Generator[None]:
        """Let a look run under the newest change's trace."""
        newest = self._newest.get(key, "")
        for trace, since in self._waiting.pop(key, ()):
            tracing.child("queue", trace, since, object=str(key))
        with bound(newest), tracing.around("reconcile", newest, object=str(key)):
            yield
