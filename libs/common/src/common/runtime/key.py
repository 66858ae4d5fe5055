"""What the reconciles of one controller are about, and which changes concern them."""

from collections.abc import Callable, Iterable, Mapping

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


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What one controller wants to be told."""

    kinds: Mapping[str, type[Object]]
    """By Kubernetes' own words, such as `RayCluster`."""
    root: type[Object]
    """The kind that its keys are about."""
    keys_of: KeysOf
