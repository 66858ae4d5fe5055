"""Laws of one write: pure, over the request and the objects before it.

A write may only touch what belongs to the RayService, its clusters, or the user's route that
agreed to it; and a cluster is only created where none that matches is left.
"""

from collections.abc import Callable, Mapping

from common import labels
from common.api.opaque import Body
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from support.fakes.kube import Request

Objects = Mapping[tuple[str, str, str], Body]


def is_allowed(request: Request, objects: Objects, service: str) -> bool:
    """Return whether a write touches nothing of others: its object is new, or belongs to what the RayService of that name has."""
    place = (request.kind, request.namespace, request.name)
    before = objects.get(place)
    if before is None or request.kind == "Event" or request.verb == "create":
        return True
    if request.kind == RAY_SERVICE.kind:
        return request.name == service
    if request.kind == "UpgradePolicy":
        return request.subresource == "status"
    meta = before["metadata"]
    if (
        request.kind == HTTP_ROUTE.kind
        and meta.get("annotations", {}).get(labels.ROUTE_PERMITS) == service
    ):
        return request.verb != "delete"
    root = objects.get((RAY_SERVICE.kind, request.namespace, service))
    owners: set[str] = set() if root is None else {root["metadata"]["uid"]}
    owners |= {
        body["metadata"]["uid"]
        for (kind, _, _), body in objects.items()
        if kind == RAY_CLUSTER.kind
        and body["metadata"].get("labels", {}).get(labels.ORIGIN_NAME) == service
    }
    return any(each["uid"] in owners for each in meta.get("ownerReferences", []))


def twin(request: Request, objects: Objects, is_whole: Callable[[str], bool]) -> str | None:
    """Return the cluster that exists, is whole, and has the very spec of one that a request creates."""
    if (request.verb, request.kind) != ("create", RAY_CLUSTER.kind):
        return None
    for (kind, namespace, name), body in objects.items():
        is_kept = kind == RAY_CLUSTER.kind and "deletionTimestamp" not in body["metadata"]
        is_same = (
            is_kept and namespace == request.namespace and essence(body) == essence(request.body)
        )
        if is_same and is_whole(name):
            return name
    return None


def essence(cluster: Body) -> tuple[str, int]:
    """Return what distinguishes the clusters of the simulation: their image, and how many worker groups they have."""
    spec = cluster["spec"]
    image = spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    return image, len(spec.get("workerGroupSpecs", []))
