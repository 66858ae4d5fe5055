"""Ownership: how objects refer to their RayService or RayJob, and which RayService to enqueue.

Spec rayservice §4.1, §4.2, §5.1.
"""

from typing import Final

from common import labels
from common.api import ray_cluster, ray_service
from common.api.core import EndpointSlice, Service
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.runtime.cache import Cache, Object
from common.runtime.key import Key

KIND: Final = ray_service.KIND


def reference(owner: ObjectMeta, kind: str = KIND) -> list[Body]:
    """Return the owner references for a child of `owner`, an object of the kind `kind`."""
    named = {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return [{**named, "controller": True, "blockOwnerDeletion": True}]


def marks(name: str, kind: str = KIND) -> dict[str, str]:
    """Return the labels that mark the children of an owner with this name and kind.

    A RayService finds its children by these labels instead of owner references.
    """
    return {labels.ORIGIN_NAME: name, labels.ORIGIN_KIND: kind}


def owns(owner: ObjectMeta, have: ObjectMeta) -> bool:
    """Return whether an owner reference of `have` has the UID of `owner`; names do not count."""
    return any(reference.uid == owner.uid for reference in have.owner_references)


def other(have: ObjectMeta, owner: ObjectMeta) -> str | None:
    """Return the controller of `have` as `<kind> <name>`, if it is not `owner`.

    None if `have` has no controller, or if it is `owner`.
    """
    owners = (reference for reference in have.owner_references if reference.controller)
    return next(
        (
            f"{reference.kind} {reference.name}"
            for reference in owners
            if reference.uid != owner.uid
        ),
        None,
    )


def other_service(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return the name of a RayService other than `service` that owns an object, or None."""
    owners = (reference for reference in have.owner_references if reference.kind == KIND)
    return next((reference.name for reference in owners if reference.uid != service.uid), None)


def may_control(service: ObjectMeta, cluster: ObjectMeta) -> bool:
    """Return whether a RayService may change a cluster that its status or a record names.

    Whoever can write the status or an annotation could put any RayCluster of the namespace there. A
    RayService may control a cluster that it owns. It may also control a cluster with its labels and
    without a controller: `kubectl delete --cascade=orphan` of a RayService leaves such clusters.
    """
    if any(reference.controller for reference in cluster.owner_references):
        return other(cluster, service) is None
    return owns(service, cluster) or marks(service.name).items() <= cluster.labels.items()


def find_controller(meta: ObjectMeta, kind: str) -> str | None:
    """Return the name of an object's controller if the controller is of this kind, or else None."""
    owners = (reference for reference in meta.owner_references if reference.controller)
    return next((reference.name for reference in owners if reference.kind == kind), None)


def keys_of(cache: Cache, obj: Object) -> list[Key]:
    """Return the key of the RayService to enqueue when an object changes; empty if there is none.

    A RayCluster has the name of its RayService in a label. A child of a cluster leads to the
    cluster in the cache, and an EndpointSlice to its Service in the cache. Gateways and routes have
    an owner reference to their RayService.
    """
    meta = obj.metadata
    if isinstance(obj, RayService):
        return [Key(meta.namespace, meta.name)]
    if isinstance(obj, EndpointSlice):
        service = cache.get(Service, meta.namespace, meta.labels.get(labels.SERVICE_NAME, ""))
        meta = service.metadata if service is not None else meta
    cluster_name = _owner(meta, ray_cluster.KIND) or meta.labels.get(labels.CLUSTER, "")
    cluster = cache.get(RayCluster, meta.namespace, cluster_name)
    origin = cluster.metadata.labels if cluster is not None else meta.labels
    is_labelled = origin.get(labels.ORIGIN_KIND) == KIND
    name = origin.get(labels.ORIGIN_NAME) if is_labelled else _owner(meta, KIND)
    return [] if name is None else [Key(meta.namespace, name)]


def _owner(meta: ObjectMeta, kind: str) -> str | None:
    return next(
        (reference.name for reference in meta.owner_references if reference.kind == kind), None
    )
