"""Ownership: how objects refer to their RayService, and how changes find it.

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
    """Return the owner references for a child of a RayService, or of another Ray object."""
    named = {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return [{**named, "controller": True, "blockOwnerDeletion": True}]


def marks(service: str) -> dict[str, str]:
    """Return the labels by which a RayService finds its children, instead of owner references."""
    return {labels.ORIGIN_NAME: service, labels.ORIGIN_KIND: KIND}


def owns(owner: ObjectMeta, have: ObjectMeta) -> bool:
    """Return whether an object has this owner by UID, not an earlier one of the same name."""
    return any(each.uid == owner.uid for each in have.owner_references)


def other(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return the controller of an object as `<kind> <name>`, unless it is this RayService."""
    owners = (each for each in have.owner_references if each.controller)
    return next((f"{each.kind} {each.name}" for each in owners if each.uid != service.uid), None)


def other_service(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return the name of another RayService that owns an object."""
    owners = (each for each in have.owner_references if each.kind == KIND)
    return next((each.name for each in owners if each.uid != service.uid), None)


def may_control(service: ObjectMeta, cluster: ObjectMeta) -> bool:
    """Return whether a RayService may change a cluster that its status or a record names.

    Whoever can write the status or an annotation could name any RayCluster of the namespace. A
    RayService may control a cluster that it owns, and a cluster with its labels that has no
    controller: those remain if a RayService is deleted with orphaning.
    """
    if any(each.controller for each in cluster.owner_references):
        return other(cluster, service) is None
    return owns(service, cluster) or marks(service.name).items() <= cluster.labels.items()


def keys_of(cache: Cache, obj: Object) -> list[Key]:
    """Return the RayServices to enqueue when an object changes.

    A RayCluster names its RayService in labels. A child of a cluster names only the cluster, and an
    EndpointSlice only its Service; the cache connects them. Gateways and routes are found by their
    owner.
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
    return next((each.name for each in meta.owner_references if each.kind == kind), None)
