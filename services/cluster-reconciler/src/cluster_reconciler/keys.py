"""Which RayCluster wants a look when an object changed (spec raycluster §5.1), and how much work a new one is."""

from collections.abc import Callable, Iterator

from cluster_reconciler.status import counters
from common.api import ray_cluster
from common.api.ray_cluster import RayCluster
from common.bus.cache import Cache, Object
from common.runtime.key import Key


def keys_of(obj: Object) -> Iterator[Key]:
    """Return the RayCluster itself, or the one that controls the object; a label alone does not count."""
    meta = obj.metadata
    if isinstance(obj, RayCluster):
        yield Key(meta.namespace, meta.name)
        return
    for owner in meta.owner_references:
        if owner.controller and owner.kind == ray_cluster.KIND and owner.api_version.startswith("ray.io/"):
            yield Key(meta.namespace, owner.name)


def size_of(cache: Cache) -> Callable[[Key], int]:
    """Return the function that tells how many worker pods a cluster should have."""

    def size(key: Key) -> int:
        cluster = cache.get(RayCluster, key.namespace, key.name)
        return 0 if cluster is None else counters.desired(cluster)

    return size
