"""The Gateway and the routes of a RayService, and raybus's part of a user's HTTPRoute.

The Gateway `<RayService>-gateway` has a listener for HTTP and, if an application takes gRPC calls,
a second listener for gRPC. In the HTTPRoute `<RayService>-httproute`, raybus owns the parent, the
match and backends of the only rule, and the traffic record; users' hostnames, filters, timeouts and
annotations stay. The GRPCRoute `<RayService>-grpcroute` has the same weights and no traffic record.
It has no match, so it takes every call. It has its own listener, because a Gateway must not accept
both an HTTPRoute and a GRPCRoute on one listener. The backend of each cluster is its Service
`<RayCluster>-serve-svc`.

In a user's route raybus writes its own backends, the record, and the labels by which the watcher
relates the route to its RayService. Everything else stays.

In the functions, `have` is an object as observed, and `own` are the Services that count as raybus's
backends in every rule.

Source: spec rayservice §9.1, §9.2, §9.6, §10.2, §10.4; acceptance 39, 51, 55, 87, 88.
"""

from collections.abc import Sequence, Set
from typing import Final, cast

import msgspec

from common import labels, names
from common.api import ray_cluster
from common.api.gateway import BackendRef, Gateway, GatewaySpec, HttpRoute, Route, RouteRule
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.reference import Reference
from common.kube.resources import GATEWAY, GRPC_ROUTE, Resource
from common.ray import owner, ports
from common.upgrade import weighted_route
from common.upgrade.traffic_record import ANNOTATION, Record

GRPC_LISTENER: Final = "grpc"
H2C: Final = "kubernetes.io/h2c"
"""`appProtocol` that makes a gateway send HTTP/2 to the gRPC port (§9.6).

Other ports have no `appProtocol`, as in KubeRay.
"""
MATCH: Final[Json] = {"path": {"type": "PathPrefix", "value": "/"}}


def backend(cluster: RayCluster, weight: int, grpc_port: int | None = None) -> BackendRef:
    """Return the backend reference to a cluster's Serve Service, for HTTP or for `grpc_port`."""
    meta, http_port = cluster.metadata, ports.of_head(cluster.raw_spec).get("serve", ports.SERVE)
    port = http_port if grpc_port is None else grpc_port
    name = names.serve_service(meta.name)
    return BackendRef.of_service(meta.namespace, name, port=port, weight=weight)


def build_service(cluster: RayCluster) -> Json | None:
    """Return the Service in front of a cluster's ready Serve proxies.

    The RayCluster owns the Service. None if the head declares no port for Serve.
    """
    meta, offered = cluster.metadata, ports.of_serve(cluster.raw_spec)
    kind = ports.head_group(cluster.raw_spec).get("serviceType")
    if not offered:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.serve_service(meta.name),
            "namespace": meta.namespace,
            "labels": {
                **owner.marks(meta.name),
                labels.SERVE: names.checked_label(f"{meta.name}-serve"),
            },
            "ownerReferences": owner.reference(meta, ray_cluster.KIND),
        },
        "spec": {
            "selector": {labels.CLUSTER: meta.name, labels.SERVE: "true"},
            "ports": [
                {**pod, "appProtocol": H2C} if pod["name"] == ports.GRPC else pod for pod in offered
            ],
            **({"type": kind} if kind else {}),
        },
    }


def build_gateway(service: ObjectMeta, gateway_class: str, grpc_port: int | None) -> Json:
    """Return the Gateway of a RayService; with a `grpc_port` it has a second listener for gRPC."""
    return manifest(
        GATEWAY, service, names.gateway(service.name), _build_gateway_spec(gateway_class, grpc_port)
    )


def corrected_gateway(have: Gateway, gateway_class: str, grpc_port: int | None) -> Json | None:
    """Return the merge patch that restores class and listeners; None if nothing has to change.

    Fields that users or the gateway controller added are not compared.
    """
    spec = _build_gateway_spec(gateway_class, grpc_port)
    is_right = have.spec == msgspec.convert(spec, GatewaySpec)
    return None if is_right else {"metadata": patch_meta(have), "spec": spec}


def build(
    resource: Resource,
    service: ObjectMeta,
    backends: Sequence[BackendRef],
    record: Record | None = None,
) -> Json:
    """Return the HTTPRoute or GRPCRoute of a RayService.

    Only the HTTPRoute has a traffic record.
    """
    name = (names.grpc_route if resource is GRPC_ROUTE else names.http_route)(service.name)
    return manifest(resource, service, name, _build_spec(resource, service, backends, {}), record)


def corrected(
    resource: Resource,
    have: Route,
    service: ObjectMeta,
    backends: Sequence[BackendRef],
    record: Record | None = None,
) -> Json | None:
    """Return the merge patch that writes backends and traffic record to a route that raybus owns.

    None if parent, matches and backends are right. The API server rejects the patch if the route
    has changed since it was observed.
    """
    is_grpc, spec, namespace = resource is GRPC_ROUTE, have.spec, service.namespace
    parents = [
        (reference.target(namespace), reference.section_name if is_grpc else None)
        for reference in spec.parent_refs
    ]
    gateway = Reference.gateway(namespace, names.gateway(service.name))
    is_hung = parents == [(gateway, GRPC_LISTENER if is_grpc else None)]
    held = [
        ([match.get("path") for match in rule.matches], have.backends(rule)) for rule in spec.rules
    ]
    wanted = tuple(backend.resolved(namespace) for backend in backends)
    if is_hung and held == [([] if is_grpc else [MATCH["path"]], wanted)]:
        return None
    (rule, *_) = _list_rules(have) or [{}]
    return {
        "metadata": patch_meta(have, record),
        "spec": _build_spec(resource, service, backends, rule),
    }


def corrected_users(
    have: HttpRoute,
    service: ObjectMeta,
    own: Set[Reference],
    backends: Sequence[BackendRef],
    record: Record,
) -> Json | None:
    """Return the merge patch that writes raybus's backends, labels and record to a user's route.

    None if labels and backends are right.
    """
    marks, rules = owner.marks(service.name), have.spec.rules
    wanted = [backend.resolved(service.namespace) for backend in backends]
    ours = (have.backends(rules[index]) for index in weighted_route.rules_of(have, own))
    held = ([backend for backend in rule if backend.target in own] for rule in ours)
    if marks.items() <= have.metadata.labels.items() and all(
        own_backends == wanted for own_backends in held
    ):
        return None
    return {
        "metadata": {**patch_meta(have, record), "labels": marks},
        "spec": {"rules": _build_users_rules(have, own, msgspec.to_builtins(backends))},
    }


def patch_meta(have: Gateway | Route, record: Record | None = None) -> Json:
    """Return the metadata of a merge patch, including the traffic record if there is one.

    The resourceVersion makes the API server reject the patch if the object has changed since it was
    observed.
    """
    return {"resourceVersion": have.metadata.resource_version, **_build_annotations(record)}


def is_held(have: HttpRoute) -> bool:
    """Return whether a user's route has the annotation with the traffic record."""
    return ANNOTATION in have.metadata.annotations


def copies_all(route: HttpRoute) -> bool:
    """Return whether a mirror of the route copies every request instead of a percentage.

    An older CRD of HTTPRoute does not know the percentage and drops it.
    """
    mirrors_by_rule = (mirrors(rule, route.metadata.namespace) for rule in route.spec.rules)
    return any(
        percent is None for rule_mirrors in mirrors_by_rule for _, _, percent in rule_mirrors
    )


def mirrors(rule: RouteRule, namespace: str) -> list[tuple[Reference, int | None, int | None]]:
    """Return target, port and percentage of each `RequestMirror` filter of a rule.

    The percentage is None for a mirror that copies every request. `namespace` is that of the route.
    """
    requests: list[Json] = [
        route_filter["requestMirror"]
        for route_filter in rule.filters
        if route_filter.get("requestMirror") is not None
    ]
    backends = (
        (msgspec.convert(request.get("backendRef") or {}, BackendRef, strict=False), request)
        for request in requests
    )
    return [
        (backend.resolved(namespace).target, backend.port, mirror.get("percent"))
        for backend, mirror in backends
    ]


def release(have: HttpRoute, service: ObjectMeta, own: Set[Reference]) -> Json:
    """Return the merge patch that removes raybus's backends, labels and record from a route."""
    marks: Json = dict.fromkeys(owner.marks(service.name))
    return {
        "metadata": {**patch_meta(have), "labels": marks, "annotations": {ANNOTATION: None}},
        "spec": {"rules": _build_users_rules(have, own, [])},
    }


def manifest(
    resource: Resource, service: ObjectMeta, name: str, spec: Json, record: Record | None = None
) -> Json:
    """Return a Gateway or a route that the RayService owns, with `record` as traffic record."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            **_build_annotations(record),
            "ownerReferences": owner.reference(service),
        },
        "spec": spec,
    }


def _build_annotations(record: Record | None) -> Json:
    return (
        {}
        if record is None
        else {"annotations": {ANNOTATION: msgspec.json.encode(record).decode()}}
    )


def _build_gateway_spec(gateway_class: str, grpc_port: int | None) -> Json:
    listeners: list[Json] = [{"name": "http", "protocol": "HTTP", "port": 80}]
    if grpc_port is not None:
        allowed = {
            "allowedRoutes": {"kinds": [{"group": GRPC_ROUTE.group, "kind": GRPC_ROUTE.kind}]}
        }
        listeners.append({"name": GRPC_LISTENER, "protocol": "HTTP", "port": grpc_port, **allowed})
    return {"gatewayClassName": gateway_class, "listeners": listeners}


def _list_rules(have: Route) -> list[Json]:
    """Return the rules as stored in the route, with the fields that users added."""
    return cast("list[Json]", msgspec.json.decode(have.spec_json, type=Json).get("rules") or [])


def _build_spec(
    resource: Resource, service: ObjectMeta, backends: Sequence[BackendRef], current: Json
) -> Json:
    parent = {"name": names.gateway(service.name), "namespace": service.namespace}
    rule = {**current, "matches": [dict(MATCH)], "backendRefs": msgspec.to_builtins(backends)}
    if resource is GRPC_ROUTE:
        parent["sectionName"] = GRPC_LISTENER
        del rule["matches"]
    return {"parentRefs": [parent], "rules": [rule]}


def _build_users_rules(have: HttpRoute, own: Set[Reference], references: list[Json]) -> list[Json]:
    """Return all rules of a user's route with raybus's backends replaced by `references`."""
    ours = weighted_route.rules_of(have, own)
    return [
        {**rule, "backendRefs": _merge_backends(rule, have.metadata.namespace, own, references)}
        if index in ours
        else rule
        for index, rule in enumerate(_list_rules(have))
    ]


def _merge_backends(
    rule: Json, namespace: str, own: Set[Reference], references: list[Json]
) -> list[Json]:
    """Return the backends of a rule with `references` in place of raybus's old backends.

    If the rule has no backend of raybus, `references` come last. Filters of the first replaced
    backend are kept.
    """
    before = cast("list[Json]", rule.get("backendRefs") or [])
    is_ours = [
        msgspec.convert(reference, BackendRef, strict=False).resolved(namespace).target in own
        for reference in before
    ]
    first = is_ours.index(True) if True in is_ours else len(before)
    replaced: Json = before[first] if first < len(before) else {}
    kept = {key: value for key, value in replaced.items() if key == "filters"}
    after = [reference for reference, is_own in zip(before, is_ours, strict=True) if not is_own][
        first:
    ]
    return [*before[:first], *({**kept, **reference} for reference in references), *after]
