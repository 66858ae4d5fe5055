"""Watches the API server, and records every state of the objects that the rules judge."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from chaos.checker.evidence import EvidenceObject, ObservedState, find_top_owner
from common import labels
from common.bus.subjects import ObjectRef
from common.kube.client import KubeClient
from common.kube.resources import HTTP_ROUTE, LEASE, POD, RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming

TARGETS: Final = (
    WatchTarget(resource=RAY_CLUSTER),
    WatchTarget(resource=RAY_SERVICE),
    WatchTarget(resource=RAY_JOB),
    WatchTarget(resource=POD, selector=labels.CLUSTER),
    WatchTarget(resource=HTTP_ROUTE, is_optional=True),
    WatchTarget(resource=LEASE, selector=labels.REPLICA_OF),
)
TIMING: Final = WatchTiming(longest_retry=1.0)
Check = Callable[[EvidenceObject], bool]


class EvidenceStore:
    """All recorded states of objects, in the order of their arrival."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.seen: list[ObservedState] = []
        self.moved_at = 0.0
        """Seconds from the beginning of the run to the last change of an object except Leases."""
        self._latest: dict[tuple[str, str, str], ObservedState] = {}
        self._stirred: defaultdict[tuple[str, str, str], asyncio.Event] = defaultdict(asyncio.Event)

    def latest(self, kind: str, namespace: str, name: str) -> EvidenceObject | None:
        """Return the last recorded state of an object; None if it was deleted or never recorded."""
        seen = self._latest.get((kind, namespace, name))
        return None if seen is None or seen.is_gone else seen.object

    def living(self, kind: str, namespace: str) -> list[EvidenceObject]:
        """Return the living objects of a kind (`ObservedState.is_alive`), ordered by name."""
        alive = [seen for seen in self._latest.values() if seen.kind == kind and seen.is_alive]
        named = [seen.object for seen in alive if seen.object.metadata.namespace == namespace]
        return sorted(named, key=lambda obj: obj.metadata.name)

    async def until(self, kind: str, namespace: str, name: str, check: Check) -> float:
        """Wait until an object passes `check`; return that time, in seconds since the run began."""
        key = (kind, namespace, name)
        while (seen := self.latest(*key)) is None or not check(seen):
            self._stirred[key].clear()
            await self._stirred[key].wait()
        return self.now()

    def origins(self) -> dict[tuple[str, str], ObjectRef]:
        """Return the top owner of every RayCluster that ever existed, such as its RayService.

        Keys are the namespace and name of the RayCluster.
        """
        roots: dict[tuple[str, str], ObjectRef] = {}
        for seen in self.seen:
            meta = seen.object.metadata
            if (
                seen.kind == "RayCluster"
                and (root := find_top_owner(seen.kind, meta, roots)) is not None
            ):
                roots[meta.namespace, meta.name] = root
        return roots

    def take(self, seen: ObservedState) -> None:
        """Record a state of an object, unless a newer one is recorded."""
        before = self._latest.get(seen.key)
        if before is not None and before.version >= seen.version:
            return
        self._latest[seen.key] = seen
        if seen.kind != "Lease":
            self.moved_at = seen.at
        self.seen.append(seen)
        self._stirred[seen.key].set()

    def missing(self, kind: str, keys: set[NamespacedName], version: int) -> None:
        """Record a deletion for each recorded object of the kind that is not in `keys`.

        `keys` is the content of a new list, and `version` its resource version.
        """
        for seen in list(self._latest.values()):
            meta = seen.object.metadata
            if seen.kind == kind and not seen.is_gone and (meta.namespace, meta.name) not in keys:
                self.take(
                    ObservedState(
                        kind=kind, version=version, at=self.now(), object=seen.object, is_gone=True
                    )
                )

    @asynccontextmanager
    async def open(self, kube: KubeClient) -> AsyncGenerator["EvidenceStore"]:
        """Watch all kinds of objects and record their states during the `with` block."""
        async with asyncio.TaskGroup() as group:
            watches = [
                Watch(kube, target, _Eye(self, target), jitter=lambda: 0.0, timing=TIMING)
                for target in TARGETS
            ]
            tasks = [group.create_task(watch.run()) for watch in watches]
            for watch in watches:
                await watch.known.wait()
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()


class _Eye:
    """Records the states of one watched kind; implements `common.kube.watch.WatchSink`."""

    def __init__(self, room: EvidenceStore, target: WatchTarget) -> None:
        self._room = room
        self._kind = target.resource.kind
        self._decoder = msgspec.json.Decoder(EvidenceObject)

    def present(self, raw: bytes, reason: str = "") -> None:
        """Record the current state of an object."""
        self._take(raw, is_gone=False)

    def gone(self, raw: bytes) -> None:
        """Record the deletion of an object."""
        self._take(raw, is_gone=True)

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        """After a list, record the deletions that the watch has missed."""
        self._room.missing(self._kind, keys, int(version or 0))

    def _take(self, raw: bytes, *, is_gone: bool) -> None:
        obj = self._decoder.decode(raw)
        version = int(obj.metadata.resource_version)
        self._room.take(
            ObservedState(
                kind=self._kind, version=version, at=self._room.now(), object=obj, is_gone=is_gone
            )
        )
