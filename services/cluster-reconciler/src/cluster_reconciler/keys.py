"""Which RayCluster wants a look when an object changed (spec raycluster §5.1), and which of many goes first."""

from collections.abc import Iterator

from cluster_reconciler.reasons import State
from cluster_reconciler.status import counters
from common.api import ray_cluster
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.bus.cache import Cache, Object
from common.runtime.key import Key
from common.runtime.precedence import Precedence


def keys_of(obj: Object) -> Iterator[Key]:
    """Return the RayCluster itself, or the one that controls the object; a label alone does not count."""
    meta = obj.metadata
    if isinstance(obj, RayCluster):
        yield Key(meta.namespace, meta.name)
        return
    for owner in meta.owner_references:
        if owner.controller and owner.kind == ray_cluster.KIND and owner.api_version.startswith("ray.io/"):
            yield Key(meta.namespace, owner.name)


def precedence(cache: Cache) -> Precedence:
    """Return what tells which clusters go first: the smallest of new ones, and those that had all their pods."""

    def size_of(key: Key) -> int:
        """Count the worker pods that a cluster should have."""
        cluster = cache.get(RayCluster, key.namespace, key.name)
        return 0 if cluster is None else counters.desired(cluster)

    def rests(key: Key) -> bool:
        cluster = cache.get(RayCluster, key.namespace, key.name)
        return cluster is not None and _is_complete(cluster.status)

    return Precedence(size_of=size_of, rests=rests)


def _is_complete(status: RayClusterStatus) -> bool:
    """Tell whether the last look found all that was wanted then."""
    return status.state == State.READY and status.ready_worker_replicas == status.desired_worker_replicas
