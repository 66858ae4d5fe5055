"""Laws of a single write: pure, over the request and the objects before it.

A write may only change what belongs to the RayService, its clusters, or the user's route that
permits it; and a cluster is only created if no matching one is left.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from common import labels
from common.api.opaque import Body
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from support.fakes.kube import Request
from support.laws import Finding, Law

Objects = Mapping[tuple[str, str, str], Body]


def is_allowed(request: Request, objects: Objects, service: str) -> bool:
    """Return whether a write changes no object of others: its object is new, or belongs to the
    RayService of that name.
    """
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
    """Return the cluster that exists, is intact, and has the same spec as the one that a request
    creates.
    """
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
    """Return what distinguishes the clusters of the simulation: their image and the number of
    worker groups.
    """
    spec = cluster["spec"]
    image = spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]
    return image, len(spec.get("workerGroupSpecs", []))


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A write of a service that the API server is about to carry out."""

    request: Request
    objects: Objects
    service: str
    is_whole: Callable[[str], bool]
    """Function that returns whether a cluster could serve again."""


def _foreign(sent: SentRequest) -> Iterator[Finding]:
    if not is_allowed(sent.request, sent.objects, sent.service):
        yield sent.request.name, f"{sent.request} touches an object of others"


def _again(sent: SentRequest) -> Iterator[Finding]:
    same = twin(sent.request, sent.objects, sent.is_whole)
    if same is not None:
        text = f"{sent.request.name} is created while {same} has the same spec, and is whole"
        yield same, text


REQUEST_LAWS: Final[tuple[Law[SentRequest], ...]] = (
    Law(name="foreign", source="ADR 12", reads="the owners of the object", check=_foreign),
    Law(name="again", source="ADR 44", reads="the clusters with the same spec", check=_again),
)
"""Laws of each write to the API server."""
