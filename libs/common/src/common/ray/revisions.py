"""Read and write the records of Serve configs (`common.ray.revision`) in the API server."""

from contextlib import suppress

import msgspec

from common import errors
from common.api.meta import Items
from common.api.ray_cluster import RayCluster
from common.kube.client import Kube, PatchRequest
from common.kube.resources import CONTROLLER_REVISION, format_selector
from common.ray import revision
from common.ray.revision import RecordedConfig, Revision, SendOutcome
from common.runtime.cache import BoundedDict, Cache


class Revisions:
    """The records of all clusters that this replica reconciles.

    They are read from the cache, except for a cluster that is new to this process: then they are
    listed at the API server, because the bus may be behind.
    """

    def __init__(self, kube: Kube, cache: Cache) -> None:
        self._kube = kube
        self._cache = cache
        self._met = BoundedDict[str, None]()
        """UIDs of the clusters whose records were listed at the API server."""

    async def list_records(self, cluster: RayCluster) -> list[Revision]:
        """Return the records of a cluster, newest first."""
        return (
            self._known(cluster)
            if cluster.metadata.uid in self._met
            else await self._listed(cluster)
        )

    async def intend(self, cluster: RayCluster, given: RecordedConfig, *, after: int) -> Revision:
        """Record a config before it is sent, and return the record.

        If the newest record has this config already, return the newest record. Raises `Conflict` if
        the newest record is not number `after`: another process has written a record since the
        decision.
        """
        known = await self.list_records(cluster)
        if not (known and known[0].data == given):
            known = await self._listed(cluster)
        newest = known[0].revision if known else 0
        if newest != after:
            raise errors.Conflict(
                f"RayCluster {cluster.metadata.name} has record {newest} instead of {after} by now"
            )
        if known and known[0].data == given:
            return known[0]
        # If the call below fails, the next read lists at the API server.
        self._met.pop(cluster.metadata.uid, None)
        body = revision.build(cluster, given, newest + 1)
        new = self._kept(
            await self._kube.create(CONTROLLER_REVISION, cluster.metadata.namespace, body)
        )
        self._met[cluster.metadata.uid] = None
        return new

    async def conclude(self, cluster: RayCluster, record: Revision, outcome: SendOutcome) -> None:
        """Record the outcome of a config, and delete records that are not needed any more.

        The outcome of an accepted record does not change.
        """
        if record.outcome in {outcome, SendOutcome.ACCEPTED}:
            return
        meta = record.metadata
        patch = PatchRequest(
            body={"metadata": {"uid": meta.uid, "annotations": {revision.OUTCOME: outcome}}}
        )
        self._kept(await self._kube.patch(CONTROLLER_REVISION, meta.namespace, meta.name, patch))
        for old in (
            record.metadata for record in revision.needless(await self.list_records(cluster))
        ):
            with suppress(errors.NotFound):
                await self._kube.delete(CONTROLLER_REVISION, old.namespace, old.name, uid=old.uid)
            self._cache.remove(Revision, old.namespace, old.name, version=old.version)

    def forget(self, cluster_uid: str) -> None:
        """Drop the state of a cluster that is deleted or that another replica reconciles now."""
        self._met.pop(cluster_uid, None)

    async def _listed(self, cluster: RayCluster) -> list[Revision]:
        meta = cluster.metadata
        selector = format_selector(revision.marks(meta.name))
        body = await self._kube.list(CONTROLLER_REVISION, meta.namespace, label_selector=selector)
        for item in msgspec.json.decode(body, type=Items[Revision]).items:
            self._cache.put(item)
        self._met[cluster.metadata.uid] = None
        return self._known(cluster)

    def _known(self, cluster: RayCluster) -> list[Revision]:
        meta = cluster.metadata
        return revision.owned_records(
            cluster, self._cache.list(Revision, meta.namespace, revision.marks(meta.name))
        )

    def _kept(self, body: bytes) -> Revision:
        new = msgspec.json.decode(body, type=Revision)
        self._cache.put(new)
        return new
