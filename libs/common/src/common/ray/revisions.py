"""ControllerRevisions at the API server, read from the bus; the `Revisions` of both services.

Two services write them, and each record names the number that it follows: a decision from an older record is refused. A
cluster that this process meets for the first time is asked for at the API server, because the bus may be behind.
"""

from collections import OrderedDict
from contextlib import suppress
from typing import Final

import msgspec

from common import errors, labels
from common.api.ray_cluster import RayCluster
from common.kube.client import Kube, Patch
from common.kube.resources import CONTROLLER_REVISION
from common.ray import revision
from common.ray.revision import Given, Outcome, Revision
from common.runtime import cache as caches
from common.runtime.cache import Cache, Objects

REMEMBERED: Final = 8192


class Revisions:
    """The records of all clusters that this replica reconciles."""

    def __init__(self, kube: Kube, cache: Cache) -> None:
        self._kube = kube
        self._cache = cache
        self._met: OrderedDict[str, None] = OrderedDict()
        """Clusters, by uid, with records that were read from the API server."""

    async def of(self, cluster: RayCluster) -> list[Revision]:
        """Return the records of a cluster, newest first."""
        if cluster.metadata.uid not in self._met:
            return await self._listed(cluster)
        return self._known(cluster)

    async def intend(self, cluster: RayCluster, given: Given, *, after: int) -> Revision:
        """Record what a cluster is about to be given, unless the newest record has that already; return that record.

        Raises `Conflict` when the newest record is not number `after`: another process decided meanwhile.
        """
        known = await self.of(cluster)
        if not (known and known[0].data == given):
            known = await self._listed(cluster)
        newest = known[0].revision if known else 0
        if newest != after:
            raise errors.Conflict(f"RayCluster {cluster.metadata.name} has record {newest} instead of {after} by now")
        if known and known[0].data == given:
            return known[0]
        self._met.pop(cluster.metadata.uid, None)  # whatever fails below, the next question asks the server
        body = revision.build(cluster, given, newest + 1)
        new = self._kept(await self._kube.create(CONTROLLER_REVISION, cluster.metadata.namespace, body))
        self._meet(cluster)
        return new

    async def conclude(self, cluster: RayCluster, record: Revision, outcome: Outcome) -> None:
        """Record what became of a config, and forget records that are not needed any more; what was accepted stays so."""
        if record.outcome in {outcome, Outcome.ACCEPTED}:
            return
        meta = record.metadata
        patch = Patch(body={"metadata": {"uid": meta.uid, "annotations": {revision.OUTCOME: outcome}}})
        self._kept(await self._kube.patch(CONTROLLER_REVISION, meta.namespace, meta.name, patch))
        for old in revision.needless(await self.of(cluster)):
            await self._forget(old)

    def forget(self, objects: Objects) -> None:
        """Drop what is remembered of clusters that another replica reconciles from now on."""
        for each in objects:
            self._met.pop(each.metadata.uid, None)

    async def _forget(self, old: Revision) -> None:
        meta = old.metadata
        with suppress(errors.NotFound):
            await self._kube.delete(CONTROLLER_REVISION, meta.namespace, meta.name, uid=meta.uid)
        self._cache.remove(Revision, meta.namespace, meta.name, version=caches.version_of(meta))

    async def _listed(self, cluster: RayCluster) -> list[Revision]:
        meta = cluster.metadata
        selector = revision.selector(meta.name)
        body = await self._kube.list(CONTROLLER_REVISION, meta.namespace, label_selector=selector)
        for each in msgspec.json.decode(body, type=revision.Revisions).items:
            self._cache.put(each)
        self._meet(cluster)
        return self._known(cluster)

    def _known(self, cluster: RayCluster) -> list[Revision]:
        meta = cluster.metadata
        marks = {labels.CLUSTER: meta.name, revision.RECORD: revision.SERVE_CONFIG}
        return revision.of(cluster, self._cache.list(Revision, meta.namespace, marks))

    def _kept(self, body: bytes) -> Revision:
        new = msgspec.json.decode(body, type=Revision)
        self._cache.put(new)
        return new

    def _meet(self, cluster: RayCluster) -> None:
        self._met[cluster.metadata.uid] = None
        self._met.move_to_end(cluster.metadata.uid)
        if len(self._met) > REMEMBERED:
            self._met.popitem(last=False)
