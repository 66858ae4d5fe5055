"""How our objects say that they belong to a RayService, and how they are found again (spec rayservice §4.1, §4.2)."""

from typing import Final

from common import labels
from common.api import ray_cluster, ray_service
from common.api.meta import ObjectMeta
from common.api.opaque import Body

KIND: Final = ray_service.KIND


def reference(service: ObjectMeta) -> list[Body]:
    """Return the owner reference of what a RayService owns."""
    return [_reference(ray_service.API_VERSION, ray_service.KIND, service)]


def cluster_reference(cluster: ObjectMeta) -> list[Body]:
    """Return the owner reference of what goes with a cluster."""
    return [_reference(ray_cluster.API_VERSION, ray_cluster.KIND, cluster)]


def other(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return who else controls an object, as `<kind> <name>`; None when nobody does, or this RayService."""
    owners = (each for each in have.owner_references if each.controller)
    return next((f"{each.kind} {each.name}" for each in owners if each.uid != service.uid), None)


def owns(service: ObjectMeta, have: ObjectMeta) -> bool:
    """Tell whether an object belongs to this very RayService, not to an earlier one of its name."""
    return any(each.uid == service.uid for each in have.owner_references)


def other_service(have: ObjectMeta, service: ObjectMeta) -> str | None:
    """Return the name of another RayService that owns an object."""
    owners = (each for each in have.owner_references if each.kind == KIND)
    return next((each.name for each in owners if each.uid != service.uid), None)


def marks(service: str) -> dict[str, str]:
    """Return the labels by which a RayService finds what is its own; owner references are not consulted."""
    return {labels.ORIGIN_NAME: service, labels.ORIGIN_KIND: KIND}


def _reference(api_version: str, kind: str, owner: ObjectMeta) -> Body:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
