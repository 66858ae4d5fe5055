"""Which partition an object belongs to: pure.

A tree is a RayService, its RayClusters and all that belongs to those; its root decides the partition. A RayCluster
names its RayService in labels, as KubeRay associates them (spec rayservice §4.2); everything else follows its controller,
or the labels that reconcilers list by. Children may be seen before their parents.
"""

from typing import Final

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.bus.sharding import Root

RAY_SERVICE: Final = "RayService"
RAY_CLUSTER: Final = "RayCluster"
SERVICE: Final = "Service"
PARENTS: Final = frozenset({RAY_SERVICE, RAY_CLUSTER, SERVICE})
"""Kinds that others are found below."""


class Ref(msgspec.Struct, frozen=True, order=True):
    """An object by its kind and name."""

    kind: str
    namespace: str
    name: str


class Address(msgspec.Struct, frozen=True):
    """Where an object belongs; `is_certain` is False while a parent on the way to the root has not been seen."""

    root: Root
    is_certain: bool


def parent_of(kind: str, meta: ObjectMeta) -> Ref | None:
    """Return the object that another one stands below; None for a root."""
    match kind:
        case "RayService":
            return None
        case "RayCluster":
            return _origin(meta) or _controller(meta, frozenset({RAY_SERVICE}))
        case _:
            return _controller(meta, PARENTS) or _labelled(kind, meta)


def _labelled(kind: str, meta: ObjectMeta) -> Ref | None:
    """Return the parent of an object without a controller, by the labels that reconcilers list by."""
    if cluster := meta.labels.get(labels.CLUSTER) or meta.labels.get(labels.HEADLESS_WORKER_SERVICE):
        return Ref(RAY_CLUSTER, meta.namespace, cluster)
    if kind == "EndpointSlice" and (service := meta.labels.get(labels.SERVICE_NAME)):
        return Ref(SERVICE, meta.namespace, service)
    return _origin(meta)


def _origin(meta: ObjectMeta) -> Ref | None:
    name = meta.labels.get(labels.ORIGIN_NAME)
    kind = meta.labels.get(labels.ORIGIN_KIND)
    return Ref(kind, meta.namespace, name) if name and kind in {RAY_SERVICE, RAY_CLUSTER} else None


def _controller(meta: ObjectMeta, kinds: frozenset[str]) -> Ref | None:
    for owner in meta.owner_references:
        if owner.controller and owner.kind in kinds:
            return Ref(owner.kind, meta.namespace, owner.name)
    return None


class Forest:
    """All trees as far as they have been seen."""

    def __init__(self) -> None:
        self._parents: dict[Ref, Ref | None] = {}
        """Every object that has been seen, with the one that it stands below."""
        self._children: dict[Ref, set[Ref]] = {}
        self._fallen: set[Ref] = set()
        """Objects that are gone while something still stands below them."""

    def __len__(self) -> int:
        """Count all that is remembered."""
        return len(self._parents) + len(self._children) + len(self._fallen)

    def plant(self, ref: Ref, parent: Ref | None) -> list[Ref]:
        """Take an object in, or its new parent; return everything below it if that may belong elsewhere now."""
        self._fallen.discard(ref)
        if ref in self._parents and self._parents[ref] == parent:
            return []
        self._unlink(ref)
        self._parents[ref] = parent
        if parent is not None:
            self._children.setdefault(parent, set()).add(ref)
        return self._below(ref)

    def fell(self, ref: Ref) -> None:
        """Forget an object; what something still stands below is remembered until that is gone too."""
        if self._children.get(ref):
            self._fallen.add(ref)
            return
        parent = self._parents.get(ref)
        self._unlink(ref)
        self._parents.pop(ref, None)
        self._fallen.discard(ref)
        if parent in self._fallen:
            self.fell(parent)

    def address(self, ref: Ref) -> Address:
        """Return the root of an object, or the nearest thing to it that is known."""
        seen = {ref}
        while (parent := self._parents.get(ref)) is not None and parent not in seen:
            seen.add(parent)
            ref = parent
        return Address(Root(ref.kind, ref.namespace, ref.name), ref in self._parents or ref.kind == RAY_SERVICE)

    def _unlink(self, ref: Ref) -> None:
        parent = self._parents.get(ref)
        siblings = self._children.get(parent) if parent is not None else None
        if parent is None or siblings is None:
            return
        siblings.discard(ref)
        if not siblings:
            del self._children[parent]

    def _below(self, ref: Ref) -> list[Ref]:
        found: list[Ref] = []
        waiting = [ref]
        while waiting:
            for child in sorted(self._children.get(waiting.pop(), ())):
                if child not in found:
                    found.append(child)
                    waiting.append(child)
        return found
