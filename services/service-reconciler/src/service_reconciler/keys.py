"""Which RayService wants a look when an object changed (spec rayservice §5.1).

Pods and EndpointSlices say only which cluster, or which Service, they belong to; the cache knows the rest.
"""

from collections.abc import Iterator

from common import labels
from common.api import ray_service
from common.api.core import EndpointSlice, Pod, Service
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.bus.cache import Cache, Object
from common.runtime.controller import Key, KeysOf


def keys_of(cache: Cache) -> KeysOf:
    """Return the function that maps a changed object to RayServices."""

    def keys(obj: Object) -> Iterator[Key]:
        meta = obj.metadata
        if isinstance(obj, RayService):
            yield Key(meta.namespace, meta.name)
            return
        for found in (meta, *_parents(cache, obj)):
            name = _service_of(found)
            if name is not None:
                yield Key(meta.namespace, name)
                return

    return keys


def _parents(cache: Cache, obj: Object) -> Iterator[ObjectMeta]:
    meta = obj.metadata
    if isinstance(obj, Pod | Service) and labels.CLUSTER in meta.labels:
        cluster = cache.get(RayCluster, meta.namespace, meta.labels[labels.CLUSTER])
        if cluster is not None:
            yield cluster.metadata
    if isinstance(obj, EndpointSlice) and labels.SERVICE_NAME in meta.labels:
        service = cache.get(Service, meta.namespace, meta.labels[labels.SERVICE_NAME])
        if service is not None:
            yield service.metadata


def _service_of(meta: ObjectMeta) -> str | None:
    if meta.labels.get(labels.ORIGIN_KIND) != ray_service.KIND:
        return None
    return meta.labels.get(labels.ORIGIN_NAME)
