"""Keys of the reconciles of one controller: the changes that concern them, and their order in the work queue. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from common.runtime.cache import Object


class Key(msgspec.Struct, frozen=True, order=True):
    """The object that a reconcile is about."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


KeysOf = Callable[[Object], Iterable[Key]]
"""The keys that an object's change enqueues; pure."""


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds that one controller subscribes to, and its keys."""

    kinds: Mapping[str, type[Object]]
    """By Kubernetes' name of the kind, such as `RayCluster`."""
    root: type[Object]
    """The kind that its keys are about."""
    keys_of: KeysOf


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
