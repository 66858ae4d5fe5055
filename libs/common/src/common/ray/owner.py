"""Ownership: how objects refer to their RayService or RayJob, and how changes find a RayService.

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
    """Return the owner references for a child of a RayService, or of an owner of another `kind`."""
    named = {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return [{**named, "controller": True, "blockOwnerDeletion": True}]


def marks(name: str, kind: str = KIND) -> dict[str, str]:
    """Return the labels of the children of a RayService, or of an owner of another `kind`.

    A RayService finds its children by these labels instead of owner references.
    """
    return {labels.ORIGIN_NAME: name, labels.ORIGIN_KIND: kind}


def owns(owner: ObjectMeta, have: ObjectMeta) -> bool:
    """Return whether an object has this owner by UID, not an earlier one of the same name."""
    return any(reference.uid == owner.uid for reference in have.owner_references)


def other(have: ObjectMeta, owner: ObjectMeta) -> str | None:
    """Return the controller of an object as `<kind> <name>`; None without a controller.

    None also if the controller is `owner`.
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
    """Return the name of another RayService that owns an object; None if there is none."""
    owners = (reference for reference in have.owner_references if reference.kind == KIND)
    return next((reference.name for reference in owners if reference.uid != service.uid), None)


def may_control(service: ObjectMeta, cluster: ObjectMeta) -> bool:
    """Return whether a RayService may change a cluster that its status or a record names.

    Whoever can write the status or an annotation could name any RayCluster of the namespace. A
    RayService may control a cluster that it owns, and a cluster with its labels that has no
    controller: such clusters remain if a RayService is deleted with orphaning.
    """
    if any(reference.controller for reference in cluster.owner_references):
        return other(cluster, service) is None
    return owns(service, cluster) or marks(service.name).items() <= cluster.labels.items()


def find_controller(meta: ObjectMeta, kind: str) -> str | None:
    """Return the name of the object's controller if it is of this kind, or else None."""
    owners = (reference for reference in meta.owner_references if reference.controller)
    return next((reference.name for reference in owners if reference.kind == kind), None)


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
    return next(
        (reference.name for reference in meta.owner_references if reference.kind == kind), None
    )
