"""Whether the HTTPRoute that a RayService names agrees to it, where both are among the manifests."""

from collections.abc import Iterator, Sequence

import msgspec

from common import labels
from common.api import ray_service
from common.api.gateway import HttpRoute
from common.kube.resources import HTTP_ROUTE
from common.upgrade import weighted_route
from raybus_cli.linting.shape import Problem
from raybus_cli.manifests.reading import Document


def problems(document: Document, beside: Sequence[Document]) -> Iterator[Problem]:
    """Yield why the route that a RayService names would be refused."""
    if document.kind != ray_service.KIND:
        return
    service = ray_service.decode({**document.body, "spec": document.body.get("spec") or {}})
    if not weighted_route.is_users(service):
        return
    name = weighted_route.name_of(service)
    for each in beside:
        if each.kind == HTTP_ROUTE.kind and each.name == name and each.namespace == document.namespace:
            route = msgspec.json.decode(msgspec.json.encode(each.body), type=HttpRoute)
            if (why := weighted_route.refusal(service, route)) is not None:
                yield ("metadata", "annotations", labels.HTTP_ROUTE), f"HTTPRoute {name} {why.message}"
