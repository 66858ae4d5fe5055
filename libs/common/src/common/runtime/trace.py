"""Which change a look is about: the traceparent of the newest message that woke its key.

A look that a timer wakes goes on with the trace of the last change, since that is what it still works on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

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
