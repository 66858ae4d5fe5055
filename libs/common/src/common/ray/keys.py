"""The RayServices that the change of an object enqueues (spec rayservice §5.1).

A RayCluster names its RayService in labels. An object of a cluster names only that cluster, and EndpointSlices only their Service;
the cache knows the rest. Gateways and routes are found by their owner.
"""

from collections.abc import Iterator

from common import labels
from common.api import ray_cluster, ray_service
from common.api.core import EndpointSlice, Service
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.runtime.cache import Cache, Object
from common.runtime.key import Key, KeysOf


def keys_of(cache: Cache) -> KeysOf:
    """Return the function that maps a changed object to RayServices."""

    def keys(obj: Object) -> Iterator[Key]:
        meta = obj.metadata
        if isinstance(obj, RayService):
            yield Key(meta.namespace, meta.name)
            return
        if isinstance(obj, EndpointSlice):
            service = cache.get(Service, meta.namespace, meta.labels.get(labels.SERVICE_NAME, ""))
            meta = service.metadata if service is not None else meta
        name = _service_of(cache, meta)
        if name is not None:
            yield Key(meta.namespace, name)

    return keys


def _service_of(cache: Cache, meta: ObjectMeta) -> str | None:
    """Return the RayService that an object belongs to: through its cluster, by its labels, or as its owner."""
    cluster = cache.get(RayCluster, meta.namespace, _cluster_of(meta))
    marks = cluster.metadata.labels if cluster is not None else meta.labels
    if marks.get(labels.ORIGIN_KIND) == ray_service.KIND:
        return marks.get(labels.ORIGIN_NAME)
    return next((each.name for each in meta.owner_references if each.kind == ray_service.KIND), None)


def _cluster_of(meta: ObjectMeta) -> str:
    owner = next((each.name for each in meta.owner_references if each.kind == ray_cluster.KIND), "")
    return owner or meta.labels.get(labels.CLUSTER, "")
