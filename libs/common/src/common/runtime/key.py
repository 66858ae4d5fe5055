"""What the reconciles of one controller are about, and which changes concern them."""

from collections.abc import Callable, Iterable

import msgspec

from common.bus.cache import Object


class Key(msgspec.Struct, frozen=True, order=True):
    """The object that a reconcile is about."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


KeysOf = Callable[[Object], Iterable[Key]]
"""Which keys want a look when an object changed; pure."""
