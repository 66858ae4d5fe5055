"""The fence: allows writes only while this replica's Lease is certainly valid.

A suspended process can resume at any instruction, so the clock is read before every write. If a
write arrives late and its object has changed, its precondition (resourceVersion or UID) fails.
"""

from collections.abc import Callable

from common import errors
from common.clock import steady
from common.observability import metrics

RETRY_SECONDS = 1.0


class Fence:
    """Allows writes until the time `open_until`, which each renewal of the Lease moves forward."""

    def __init__(self, clock: Callable[[], float] = steady) -> None:
        self.clock = clock
        self.open_until = float("-inf")

    @property
    def is_open(self) -> bool:
        return self.clock() < self.open_until

    def close(self) -> None:
        """Reject all writes until the next renewal."""
        self.open_until = float("-inf")

    def check(self) -> None:
        """Raise `OwnershipLost` unless writes are allowed."""
        if not self.is_open:
            metrics.FENCED.inc()
            text = "not written: our Lease is not sure, so another replica may own this"
            raise errors.OwnershipLost(text, after=RETRY_SECONDS)
