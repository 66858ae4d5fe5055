"""ControllerRevisions at the API server, read from the bus; the `Revisions` of both services.

Two services write them, one at a time for a cluster, so the other's come by message. A cluster that this process meets for
the first time is asked for at the API server, because the bus may be behind.
"""

from collections import OrderedDict
from contextlib import suppress
from typing import Final

import msgspec

from common import errors, labels
from common.api.ray_cluster import RayCluster
from common.bus import cache as caches
from common.bus.cache import Cache, Objects
from common.kube.client import Kube, Patch
from common.kube.resources import CONTROLLER_REVISION
from common.ray import revision
from common.ray.revision import Given, Revision

REMEMBERED: Final = 8192


class Revisions:
    """The records of all clusters that this replica looks after."""

    def __init__(self, kube: Kube, cache: Cache) -> None:
        self._kube = kube
        self._cache = cache
        self._met: OrderedDict[str, None] = OrderedDict()
        """Clusters, by uid, whose records were asked for."""

    async def given(self, cluster: RayCluster) -> Given | None:
        """Return what a cluster was given last, None when nothing is recorded."""
        known = await self._of(cluster)
        return known[0].data if known else None

    async def record(self, cluster: RayCluster, given: Given) -> None:
        """Record what a cluster was given, and forget what is older than the one before."""
        known = await self._of(cluster)
        if known and known[0].data == given:
            return
        number = known[0].revision + 1 if known else 1
        self._met.pop(cluster.metadata.uid, None)  # whatever fails below, the next question asks the server
        namespace = cluster.metadata.namespace
        try:
            body = await self._kube.create(CONTROLLER_REVISION, namespace, revision.build(cluster, given, number))
        except errors.AlreadyExists:  # the cluster had this config before: it is the current one again
            name = revision.name(cluster.metadata.name, given)
            body = await self._kube.patch(CONTROLLER_REVISION, namespace, name, Patch(body={"revision": number}))
        new = msgspec.json.decode(body, type=Revision)
        self._cache.put(new)
        others = [each for each in known if each.metadata.name != new.metadata.name]
        for old in others[revision.KEPT - 1 :]:
            await self._forget(old)
        self._meet(cluster)

    def forget(self, objects: Objects) -> None:
        """Drop what is remembered of clusters that somebody else looks after from now on."""
        for each in objects:
            self._met.pop(each.metadata.uid, None)

    async def _forget(self, old: Revision) -> None:
        meta = old.metadata
        with suppress(errors.NotFound):
            await self._kube.delete(CONTROLLER_REVISION, meta.namespace, meta.name, uid=meta.uid)
        self._cache.remove(Revision, meta.namespace, meta.name, version=caches.version_of(meta))

    async def _of(self, cluster: RayCluster) -> list[Revision]:
        meta = cluster.metadata
        if meta.uid not in self._met:
            selector = revision.selector(meta.name)
            body = await self._kube.list(CONTROLLER_REVISION, meta.namespace, label_selector=selector)
            for each in msgspec.json.decode(body, type=revision.Revisions).items:
                self._cache.put(each)
            self._meet(cluster)
        known = self._cache.list(
            Revision, meta.namespace, {labels.CLUSTER: meta.name, revision.RECORD: revision.SERVE_CONFIG}
        )
        return revision.of(cluster, known)

    def _meet(self, cluster: RayCluster) -> None:
        self._met[cluster.metadata.uid] = None
        self._met.move_to_end(cluster.metadata.uid)
        if len(self._met) > REMEMBERED:
            self._met.popitem(last=False)
