"""Find the root of each object in its tree of owners; the root decides the partition. No I/O.

A tree is a RayService, a RayJob or a RayCronJob with its RayClusters and everything that belongs to
them. A RayCluster names its RayService or RayJob in labels, as KubeRay does (spec rayservice §4.2,
rayjob §4). A RayJob follows its RayCronJob by its controller reference. Every other object follows
its controller reference, or the labels by which reconcilers list it. A child object may be observed
before its parent.
"""

from typing import Final

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.bus.subjects import ObjectRef

RAY_SERVICE: Final = "RayService"
RAY_JOB: Final = "RayJob"
RAY_CRON_JOB: Final = "RayCronJob"
RAY_CLUSTER: Final = "RayCluster"
SERVICE: Final = "Service"
TOP_KINDS: Final = frozenset({RAY_SERVICE, RAY_CRON_JOB})
"""Kinds that never have a parent object."""
OWNERS: Final = frozenset({RAY_SERVICE, RAY_JOB, RAY_CLUSTER})
PARENTS: Final = {
    RAY_JOB: frozenset({RAY_CRON_JOB}),
    RAY_CLUSTER: frozenset({RAY_SERVICE, RAY_JOB}),
    "EndpointSlice": OWNERS | {SERVICE},
}
"""Permitted kinds of the parent, by kind of the child; `OWNERS` for all other kinds of children.

A tree is therefore never deeper than five levels, whatever labels users write.
"""


class RootAddress(msgspec.Struct, frozen=True):
    """The root of an object's tree, as far as it is known.

    While `is_certain` is False, a parent has not been observed yet, so `root` may still change.
    """

    root: ObjectRef
    is_certain: bool


def find_parent(kind: str, meta: ObjectMeta) -> ObjectRef | None:
    """Return the parent that an object's metadata names, observed or not; None for a root."""
    if kind in TOP_KINDS:
        return None
    parents, namespace = PARENTS.get(kind, OWNERS), meta.namespace
    owners = (
        owner for owner in meta.owner_references if owner.controller and owner.kind in parents
    )
    controller = next((ObjectRef(owner.kind, namespace, owner.name) for owner in owners), None)
    if kind == RAY_JOB:
        return controller
    if kind != RAY_CLUSTER:
        if controller is not None:
            return controller
        if cluster := meta.labels.get(labels.CLUSTER) or meta.labels.get(
            labels.HEADLESS_WORKER_SERVICE
        ):
            return ObjectRef(RAY_CLUSTER, namespace, cluster)
        if kind == "EndpointSlice" and (service := meta.labels.get(labels.SERVICE_NAME)):
            return ObjectRef(SERVICE, namespace, service)
    name, of = meta.labels.get(labels.ORIGIN_NAME), meta.labels.get(labels.ORIGIN_KIND)
    return ObjectRef(of, namespace, name) if name and of in parents else controller


class OwnerGraph:
    """The parent of every observed object."""

    def __init__(self) -> None:
        self._parents: dict[ObjectRef, ObjectRef | None] = {}
        """Every observed object with its parent."""
        self._children: dict[ObjectRef, dict[ObjectRef, None]] = {}
        self._removed: set[ObjectRef] = set()
        """Deleted objects that still have children."""

    def add(self, ref: ObjectRef, parent: ObjectRef | None) -> list[ObjectRef]:
        """Add an object or change its parent; return its descendants, whose root may have changed.

        The list is empty if the parent is unchanged.
        """
        self._removed.discard(ref)
        if ref in self._parents and self._parents[ref] == parent:
            return []
        self._unlink(ref)
        self._parents[ref] = parent
        if parent is not None:
            self._children.setdefault(parent, {})[ref] = None
        below: dict[ObjectRef, None] = {}
        waiting = [ref]
        while waiting:
            children = [
                child for child in self._children.get(waiting.pop(), ()) if child not in below
            ]
            below.update(dict.fromkeys(children))
            waiting += children
        return list(below)

    def remove(self, ref: ObjectRef) -> None:
        """Remove an object; an object with children stays until its last child is removed."""
        gone: ObjectRef | None = ref
        while gone is not None:
            if self._children.get(gone):
                self._removed.add(gone)
                return
            parent = self._unlink(gone)
            self._removed.discard(gone)
            gone = parent if parent in self._removed else None

    def address(self, ref: ObjectRef) -> RootAddress:
        """Return the root of an object's tree; if it is unknown, the topmost known ancestor."""
        visited = {ref}
        while (parent := self._parents.get(ref)) is not None and parent not in visited:
            visited.add(parent)
            ref = parent
        return RootAddress(ref, ref in self._parents or ref.kind in TOP_KINDS)

    def _unlink(self, ref: ObjectRef) -> ObjectRef | None:
        parent = self._parents.pop(ref, None)
        if parent is not None:
            siblings = self._children[parent]
            del siblings[ref]
            if not siblings:
                del self._children[parent]
        return parent
