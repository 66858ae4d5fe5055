"""`<RayService>-grpcroute`: gRPC calls, with the very shares of the HTTPRoute (spec rayservice §9.6; acceptance 87).

It hangs on a listener of its own: of an HTTPRoute and a GRPCRoute on one listener a Gateway must refuse one. It has no match,
so it takes every call, and no record: the HTTPRoute's is for both.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from common import names
from common.api.gateway import GrpcRoute
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import GRPC_ROUTE
from common.ray import owner
from traffic_manager.resources import backend
from traffic_manager.resources.backend import Backend

LISTENER: Final = "grpc"


def build(service: ObjectMeta, backends: Sequence[Backend]) -> Json:
    """Return the route of a RayService's gRPC calls."""
    return {
        "apiVersion": GRPC_ROUTE.api_version,
        "kind": GRPC_ROUTE.kind,
        "metadata": {
            "name": names.grpc_route(service.name),
            "namespace": service.namespace,
            "ownerReferences": owner.reference(service),
        },
        "spec": _spec(service, backends, {}),
    }


def drift(have: GrpcRoute, service: ObjectMeta, backends: Sequence[Backend]) -> str | None:
    """Return why a route must be rewritten."""
    spec = have.spec
    held = [(each.name, each.namespace, each.section_name) for each in spec.parent_refs]
    if held != [(names.gateway(service.name), service.namespace, LISTENER)]:
        return "its parent differs"
    if len(spec.rules) != 1 or spec.rules[0].matches:
        return "its rule differs"
    return None if backend.is_held(spec.rules[0], service.namespace, backends) else "its backends differ"


def patch(have: GrpcRoute, service: ObjectMeta, backends: Sequence[Backend]) -> Json:
    """Return the merge patch that writes the shares, refused when the route changed since it was observed."""
    held = msgspec.json.decode(have.spec_json, type=dict[str, Any])
    meta = {"resourceVersion": have.metadata.resource_version}
    return {"metadata": meta, "spec": _spec(service, backends, held)}


def _spec(service: ObjectMeta, backends: Sequence[Backend], held: Json) -> Json:
    rules = cast("list[Json]", held.get("rules") or [{}])
    rule = {key: value for key, value in rules[0].items() if key != "matches"}
    rule["backendRefs"] = backend.references(service.namespace, backends)
    parent = {"name": names.gateway(service.name), "namespace": service.namespace, "sectionName": LISTENER}
    return {"parentRefs": [parent], "rules": [rule]}
