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
    """The config records of all clusters that this replica reconciles.

    The records of a cluster that is new to this process are listed at the API server first, because
    the messages of NATS may be late. Afterwards they are read from the cache.
    """

    def __init__(self, kube: Kube, cache: Cache) -> None:
        self._kube = kube
        self._cache = cache
        self._met = BoundedDict[str, None]()
        """UIDs of the clusters whose records have been listed at the API server."""

    async def list_records(self, cluster: RayCluster) -> list[Revision]:
        """Return the records of a cluster, newest first."""
        return (
            self._known(cluster)
            if cluster.metadata.uid in self._met
            else await self._listed(cluster)
        )

    async def intend(self, cluster: RayCluster, given: RecordedConfig, *, after: int) -> Revision:
        """Record a config before it is sent, and return the record.

        If the newest record already has this config, return that record. Raises `Conflict` if the
        number of the newest record is not `after`: a different process has then written a record
        since the decision to send `given`.
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
        # If the call below fails, the next read lists the records at the API server.
        self._met.pop(cluster.metadata.uid, None)
        body = revision.build(cluster, given, newest + 1)
        new = self._kept(
            await self._kube.create(CONTROLLER_REVISION, cluster.metadata.namespace, body)
        )
        self._met[cluster.metadata.uid] = None
        return new

    async def conclude(self, cluster: RayCluster, record: Revision, outcome: SendOutcome) -> None:
        """Add the outcome to a record, and delete the records that are not needed any more.

        A record that is already marked as accepted stays unchanged.
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
        """Drop the state of a cluster that is deleted or now reconciled by a different replica."""
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
