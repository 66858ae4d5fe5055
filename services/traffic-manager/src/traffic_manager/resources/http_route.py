"""`<RayService>-httproute`: which cluster gets which share of the requests (spec rayservice §9.2; acceptance 39, 51, 55).

Of the route we own the parent, the one rule's match and backends, and the traffic record. Hostnames, filters, time-outs and
annotations of users stay.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from common import names, ports
from common.api.gateway import HttpRoute
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE
from common.ray import owner, service_ports
from common.upgrade.traffic_record import ANNOTATION, Record
from traffic_manager.resources import backend
from traffic_manager.resources.backend import Backend

MATCH: Final[Json] = {"path": {"type": "PathPrefix", "value": "/"}}


def serve_port(config: Json) -> int:
    """Return the port through which a cluster takes HTTP requests."""
    return service_ports.of_head(config).get("serve", ports.SERVE)


def build(service: ObjectMeta, backends: Sequence[Backend], record: Record) -> Json:
    """Return the route of a RayService."""
    return {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": {
            "name": names.http_route(service.name),
            "namespace": service.namespace,
            "annotations": {ANNOTATION: _text(record)},
            "ownerReferences": owner.reference(service),
        },
        "spec": _spec(service, backends, {}),
    }


def drift(have: HttpRoute, service: ObjectMeta, backends: Sequence[Backend]) -> str | None:
    """Return why a route must be rewritten."""
    spec = have.spec
    if [(each.name, each.namespace) for each in spec.parent_refs] != [(names.gateway(service.name), service.namespace)]:
        return "its parent differs"
    if len(spec.rules) != 1 or [each.get("path") for each in spec.rules[0].matches] != [MATCH["path"]]:
        return "its rule differs"
    return None if backend.is_held(spec.rules[0], service.namespace, backends) else "its backends differ"


def patch(have: HttpRoute, service: ObjectMeta, backends: Sequence[Backend], record: Record) -> Json:
    """Return the merge patch that writes weights and record in one request."""
    held = msgspec.json.decode(have.spec_json, type=dict[str, Any])
    return {**record_patch(have, record), "spec": _spec(service, backends, held)}


def record_patch(have: HttpRoute, record: Record) -> Json:
    """Return the merge patch that writes only the record, refused when the route changed since it was observed."""
    meta = {"resourceVersion": have.metadata.resource_version, "annotations": {ANNOTATION: _text(record)}}
    return {"metadata": meta}


def _spec(service: ObjectMeta, backends: Sequence[Backend], held: Json) -> Json:
    rules = cast("list[Json]", held.get("rules") or [{}])
    references = backend.references(service.namespace, backends)
    rule = {**rules[0], "matches": [dict(MATCH)], "backendRefs": references}
    parent = {"name": names.gateway(service.name), "namespace": service.namespace}
    return {"parentRefs": [parent], "rules": [rule]}


def _text(record: Record) -> str:
    return msgspec.json.encode(record).decode()
