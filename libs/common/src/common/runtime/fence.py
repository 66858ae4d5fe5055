"""Fences writes: open only while our own Lease is certainly valid, and checked before every write.

A frozen process resumes at any point of its code, so each write reads the time from the kernel. A write that was already sent is
stopped by its precondition (design rule 5).
"""

from collections.abc import Callable

from common import errors
from common.clock import steady
from common.observability import metrics

RETRY_SECONDS = 1.0


class Fence:
    """Lets writes pass until a moment of its clock that each renewal moves on."""

    def __init__(self, clock: Callable[[], float] = steady) -> None:
        self.clock = clock
        self.open_until = float("-inf")

    @property
    def is_open(self) -> bool:
        """Return whether a write would pass now."""
        return self.clock() < self.open_until

    def close(self) -> None:
        """Let nothing pass."""
        self.open_until = float("-inf")

    def check(self) -> None:
        """Raise `NotOurs` unless writes may pass."""
        if not self.is_open:
            metrics.FENCED.inc()
            why = "not written: our Lease is not sure, so another replica may own this"
            raise errors.NotOurs(why, after=RETRY_SECONDS)
