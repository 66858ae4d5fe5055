"""The RayCluster to enqueue when an object changes (spec raycluster §5.1), and the order among many."""

from collections.abc import Iterator

from cluster_reconciler.reasons import State
from cluster_reconciler.status import compute
from common.api import ray_cluster
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.runtime.cache import Cache, Object
from common.runtime.key import Key, Priority


def keys_of(obj: Object) -> Iterator[Key]:
    """Return the RayCluster itself, or the controller of the object; a label alone does not count."""
    meta = obj.metadata
    if isinstance(obj, RayCluster):
        yield Key(meta.namespace, meta.name)
        return
    for owner in meta.owner_references:
        if owner.controller and owner.kind == ray_cluster.KIND and owner.api_version.startswith("ray.io/"):
            yield Key(meta.namespace, owner.name)


def priority(cache: Cache) -> Priority:
    """Return the order of clusters: the smallest of new ones first, and those that had all their pods."""

    def size_of(key: Key) -> int:
        """Count the worker pods that a cluster should have."""
        cluster = cache.get(RayCluster, key.namespace, key.name)
        return 0 if cluster is None else compute.desired_workers(cluster)

    def is_steady(key: Key) -> bool:
        cluster = cache.get(RayCluster, key.namespace, key.name)
        return cluster is not None and _is_complete(cluster.status)

    return Priority(size_of=size_of, is_steady=is_steady)


def _is_complete(status: RayClusterStatus) -> bool:
    """Return whether the last reconcile found all that was wanted then."""
    return status.state == State.READY and status.ready_worker_replicas == status.desired_worker_replicas
