"""Keys of the reconciles of one controller, and the changes that concern them."""

from collections.abc import Callable, Iterable, Mapping

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
