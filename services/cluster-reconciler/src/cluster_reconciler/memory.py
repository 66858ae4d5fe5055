"""What one replica remembers about the clusters that it reconciles.

Nothing here is needed for a right decision: after a restart, or a hand-over of the key, it is read or learned again.
"""

from datetime import datetime, timedelta
from typing import Final

from cluster_reconciler.observed import Child
from common.kube.resources import Resource
from common.runtime.key import Key

TRUSTED_FOR: Final = timedelta(seconds=300)
"""How long a child outside the state stream is taken to be there after we saw it (spec raycluster §5.1)."""


class Memory:
    """About one RayCluster, of one uid."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.has_listed_pods = False
        """Whether the pods were listed at the API server itself, since the start and since an answer was lost: the state may
        be old."""
        self.taken: set[str] = set()
        """Pod names that we wanted and that belong to others."""
        self.progress_since: datetime | None = None
        """Since when the progress of some pods has waited for a status update."""
        self._deleted: set[str] = set()
        self._seen: dict[tuple[Resource, str], tuple[str, datetime]] = {}

    def saw(self, child: Child, *, now: datetime) -> None:
        """Note that a child is there."""
        self._seen[child.resource, child.name] = (child.wanted, now)

    def trusts(self, child: Child, *, now: datetime) -> bool:
        """Return whether a child was observed lately, with the same wanted content."""
        wanted, seen = self._seen.get((child.resource, child.name), ("", None))
        return seen is not None and wanted == child.wanted and now - seen < TRUSTED_FOR

    def forget_children(self) -> None:
        """Forget which children were observed, so that the next reconcile reads them again."""
        self._seen.clear()

    def deleted(self, uid: str) -> None:
        """Note that we asked a pod to go."""
        self._deleted.add(uid)

    def awaited(self, present: frozenset[str]) -> frozenset[str]:
        """Return the pods that we asked to go and that are still there; forget the others."""
        self._deleted &= present
        return frozenset(self._deleted)


class Memories:
    """About all clusters of a replica."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Memory] = {}

    def of(self, key: Key, uid: str) -> Memory:
        """Return what is remembered; a cluster of the same name and another uid starts anew."""
        known = self._by_key.get(key)
        if known is None or known.uid != uid:
            known = self._by_key[key] = Memory(uid)
        return known

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a cluster that is gone."""
        self._by_key.pop(key, None)
