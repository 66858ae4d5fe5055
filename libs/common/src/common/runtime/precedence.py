"""Which of a namespace's keys goes first: what a service tells the queue of its keys. Pure."""

from collections.abc import Callable
from typing import Final

import msgspec

from common.runtime.key import Key


def one_size(_key: object) -> int:
    """Take all keys for the same amount of work."""
    return 1


def never_rests(_key: object) -> bool:
    """Take no key for one that has reached its goal."""
    return False


class Precedence(msgspec.Struct, frozen=True, kw_only=True):
    """Asked when a key begins to wait."""

    size_of: Callable[[Key], int] = one_size
    """How much work a new one is."""
    rests: Callable[[Key], bool] = never_rests
    """Whether it had reached its goal before something happened to it."""

    @property
    def sets_rested_apart(self) -> bool:
        """Tell whether keys that had reached their goal get workers of their own."""
        return self.rests is not never_rests


AS_THEY_COME: Final = Precedence()
