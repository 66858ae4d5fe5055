"""How our objects name the RayService that they belong to, and how they are found again (spec rayservice §4.1, §4.2, §5.1)."""

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
    """Return the owner reference of what a RayService, or an object of another kind of Ray, owns."""
    named = {
        "apiVersion": ray_cluster.API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return [{**named, "controller": True, "blockOwnerDeletion": True}]


def marks(service: str) -> dict[str, str]:
    """Return the labels by which a RayService finds what is its own; owner references are not consulted."""
    return {labels.ORIGIN_NAME: service, labels.ORIGIN_KIND: KIND}


def owns(owner: ObjectMeta, have: ObjectMeta) -> bool:
    """Return whether an object belongs to this very owner, not to an earlier one of its name."""
    return any(each.uid == owner.uid for each in have.owner_references)


def other(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return the other controller of an object, as `<kind> <name>`; None when there is none, or it is this RayService."""
    owners = (each for each in have.owner_references if each.controller)
    return next((f"{each.kind} {each.name}" for each in owners if each.uid != service.uid), None)


def other_service(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return the name of another RayService that owns an object."""
    owners = (each for each in have.owner_references if each.kind == KIND)
    return next((each.name for each in owners if each.uid != service.uid), None)


def may_control(service: ObjectMeta, cluster: ObjectMeta) -> bool:
    """Return whether a RayService may change and serve from a cluster that its status or a record names.

    Every writer of the status or an annotation can name any RayCluster of the namespace there. A RayService may control the cluster that
    it owns, and one without a controller that carries its labels, as clusters do after their RayService was deleted without them.
    """
    if any(each.controller for each in cluster.owner_references):
        return other(cluster, service) is None
    return owns(service, cluster) or marks(service.name).items() <= cluster.labels.items()


def keys_of(cache: Cache, obj: Object) -> list[Key]:
    """Return the RayServices that the change of an object enqueues.

    A RayCluster names its RayService in labels. An object of a cluster names only that cluster, and EndpointSlices only their Service;
    the cache knows the rest. Gateways and routes are found by their owner.
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
