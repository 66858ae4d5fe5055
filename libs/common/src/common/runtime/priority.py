"""Order of a service's keys in the work queue. Pure."""

from collections.abc import Callable
from typing import Final

import msgspec

from common.runtime.key import Key


def one_size(_key: object) -> int:
    """Give all keys the same size."""
    return 1


def never_steady(_key: object) -> bool:
    """Regard no key as steady."""
    return False


class Priority(msgspec.Struct, frozen=True, kw_only=True):
    """Order of keys in the work queue; called when a key begins to wait."""

    size_of: Callable[[Key], int] = one_size
    """Amount of work of a new key."""
    is_steady: Callable[[Key], bool] = never_steady
    """Whether a key had reached its goal before it was enqueued."""

    @property
    def has_steady_lane(self) -> bool:
        """Return whether steady keys get workers of their own."""
        return self.is_steady is not never_steady


FIFO: Final = Priority()
