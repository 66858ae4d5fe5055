"""The HTTPRoute that carries the traffic of a RayService, and the problems that prevent it.

The route is raybus's own (`<RayService>-httproute` on `<RayService>-gateway`), or a user's route,
named in the annotation `raybus.io/http-route`. In a user's route, raybus writes only its own
backends: the Serve Services of the RayService and its clusters. It writes them to the rules that
already have one of these backends (compared by group, kind, namespace and name). If there is no
such rule, it writes them to the rules without backends, or else to the only rule of the route.

A route is written only if the RayService owns it, or if its annotation `raybus.io/rayservice` names
the RayService (ADR 12). A backend counts as raybus's own only if its cluster exists or is in the
traffic record, never by the pattern of its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final

import msgspec

from common import labels, names
from common.annotation_record import EARLIEST
from common.api.gateway import (
    Gateway,
    HttpRoute,
    RoutingCode,
    RoutingProblem,
    gateway_problem,
    route_problem,
)
from common.api.kubernetes_syntax import dns_1123_subdomain_problems
from common.api.meta import ObjectMeta
from common.api.ray_service import RayService
from common.api.reference import Reference
from common.errors import Problem
from common.kube.resources import HTTP_ROUTE
from common.ray import owner
from common.upgrade import traffic_record
from common.upgrade.traffic_record import Record

Place = tuple[str, str]
"""Namespace and name of an object."""
MAX_BACKENDS: Final = 16
"""Maximum number of backends that the Gateway API allows in a rule."""
_LISTED: Final = 10
"""Maximum number of service names that a message lists."""


def name_of(service: RayService) -> str:
    """Return the name of the HTTPRoute that carries the traffic of a RayService."""
    return _given(service) or names.http_route(service.metadata.name)


def is_users(service: RayService) -> bool:
    """Return whether the user provides the route that carries the traffic."""
    return _given(service) is not None


def invalid_route_name(service: RayService) -> str | None:
    """Return why raybus uses its own route instead of the one that the user names, or None."""
    text = service.metadata.annotations.get(labels.HTTP_ROUTE)
    if text is None or _given(service) is not None:
        return None
    ours = names.http_route(service.metadata.name)
    if text.strip() == ours:
        return (
            f'{labels.HTTP_ROUTE} "{text}" is the name of the route that raybus makes; give '
            "yours another name"
        )
    return (
        f'{labels.HTTP_ROUTE} "{text}" is not the name of an HTTPRoute in this namespace; '
        f"{ours} is used"
    )


def parents_of(service: RayService, route: HttpRoute | None) -> tuple[Place, ...]:
    """Return namespace and name of each Gateway through which the traffic must flow."""
    meta = service.metadata
    if not is_users(service):
        return ((meta.namespace, names.gateway(meta.name)),)
    if route is None:
        return ()
    targets = (reference.target(meta.namespace) for reference in route.spec.parent_refs)
    return tuple(target.place for target in targets if target.is_gateway)


def gateway_trouble(
    service: RayService, route: HttpRoute | None, gateways: Mapping[Place, Gateway | None]
) -> RoutingProblem | None:
    """Return the problem of a Gateway that takes no requests; None if all Gateways take requests.

    The problem's message names the Gateway.
    """
    for namespace, name in parents_of(service, route):
        gateway = gateways.get((namespace, name))
        problem = gateway_problem(gateway)
        if gateway is not None and not is_users(service):
            problem = not_ours(service.metadata, gateway.metadata) or problem
        if problem is not None:
            hint = ""  # if no controller serves the class of a Gateway, it is never accepted
            if gateway is not None and problem.code is RoutingCode.NOT_ACCEPTED:
                hint = (
                    f" (gatewayClassName {gateway.spec.gateway_class_name}: does a controller "
                    "serve it?)"
                )
            return msgspec.structs.replace(
                problem, message=f"Gateway {namespace}/{name} {problem.message}{hint}"
            )
    return None


def route_trouble(
    service: RayService,
    route: HttpRoute | None,
    clusters: Iterable[str] = (),
    *,
    is_settled: bool,
) -> RoutingProblem | None:
    """Return why the traffic does not follow the route; None if it does.

    The problem's message names the route. `clusters` are the names of the existing clusters. For
    `is_settled` see `common.api.gateway.route_problem`.
    """
    where = f"HTTPRoute {service.metadata.namespace}/{name_of(service)}"
    if route is None:
        return Problem(RoutingCode.MISSING, f"{where} does not exist")
    problem = refusal(service, route)
    if problem is None and is_users(service):
        own, status = own_backends(service, clusters, (route,)), service.status
        roles = (status.active_service_status, status.pending_service_status)
        if rules_of(route, own):
            problem = too_many_backends(
                route, own, max(1, sum(bool(role.ray_cluster_name) for role in roles))
            )
        else:
            need = f"one with a backendRef to Service {names.serve_service(service.metadata.name)}"
            text = f"has no rule for this service: add a rule without backendRefs, or {need}"
            problem = Problem(RoutingCode.NO_RULE, text)
    problem = problem or route_problem(route, is_settled=is_settled)
    return None if problem is None else problem.at(where)


def refusal(service: RayService, route: HttpRoute) -> RoutingProblem | None:
    """Return why raybus may not write a route for a RayService, with the remedy; None if it may."""
    if route.metadata.name == names.http_route(service.metadata.name):
        return not_ours(service.metadata, route.metadata)
    if (other := owner.other_service(route.metadata, service.metadata)) is not None:
        text = (
            f"is owned by RayService {other} and carries its traffic: "
            f"name an HTTPRoute of your own in {labels.HTTP_ROUTE}, or remove that annotation"
        )
        return Problem(RoutingCode.IN_USE, text)
    holder = route.metadata.labels.get(labels.ORIGIN_NAME, service.metadata.name)
    if holder != service.metadata.name and traffic_record.ANNOTATION in route.metadata.annotations:
        text = f"carries the traffic of RayService {holder}; a route carries that of one"
        return Problem(RoutingCode.IN_USE, text)
    return (
        None
        if service.metadata.name in _permitted(route.metadata)
        else _not_permitted(service, route)
    )


def not_ours(service: ObjectMeta, have: ObjectMeta) -> RoutingProblem | None:
    """Return a problem if the RayService does not own `have`, which has a name that raybus needs.

    raybus does not modify such an object.
    """
    if owner.owns(service, have):
        return None
    text = (
        f"exists and is not owned by RayService {service.name}: delete it, or give the "
        "RayService another name"
    )
    return Problem(RoutingCode.NOT_OWNED, text)


def record_of(service: RayService, routes: Iterable[HttpRoute | None]) -> Record:
    """Return the newest traffic record of a RayService on these routes, or else in the status.

    Routes that carried the traffic before may still have an old record, if raybus may not write
    them any more. Records are never merged: a cluster that is missing in the newest record has no
    traffic, even if the status still lists the cluster.
    """
    records = [record for record in _records(service, routes) if record.clusters]
    return max(
        records, key=lambda record: record.changed_at or EARLIEST, default=None
    ) or traffic_record.of_status(service)


def own_backends(
    service: RayService, clusters: Iterable[str] = (), routes: Iterable[HttpRoute | None] = ()
) -> frozenset[Reference]:
    """Return the Serve Services of a RayService and of its existing and recorded clusters.

    `clusters` are the names of the existing clusters; others are in the records on `routes`. A
    cluster that is only in the status does not count: whoever may write the status could otherwise
    have backends of other owners replaced.
    """
    recorded = (name for record in _records(service, routes) for name in record.clusters)
    owners = (service.metadata.name, *clusters, *recorded)
    return frozenset(serve_service(service.metadata.namespace, name) for name in owners)


def serve_service(namespace: str, owner: str) -> Reference:
    """Return a reference to the Serve Service of `owner`, a RayService or a cluster."""
    return Reference.service(namespace, names.serve_service(owner))


def rules_of(route: HttpRoute, own: Set[Reference]) -> tuple[int, ...]:
    """Return the indexes of the rules of a route to which raybus writes its backends.

    `own` is the result of `own_backends`. The description of this module says how the rules are
    chosen.
    """
    rules = route.spec.rules
    ours = tuple(
        index
        for index, rule in enumerate(rules)
        if any(backend.target in own for backend in route.backends(rule))
    )
    redirects = [
        any(route_filter.get("type") == "RequestRedirect" for route_filter in rule.filters)
        for rule in rules
    ]
    bare = tuple(
        index for index, rule in enumerate(rules) if not rule.backend_refs and not redirects[index]
    )
    return ours or bare or ((0,) if redirects == [False] else ())


def is_overwritten(route: HttpRoute, own: Set[Reference]) -> bool:
    """Return whether another writer has replaced raybus's backends (`own`) in a route.

    raybus writes weights and record in one request, so another writer must have changed weights
    that differ from the record.
    """
    shares, namespace = traffic_record.of_route(route).clusters, route.metadata.namespace
    wanted = {
        serve_service(namespace, name): share.weight
        for name, share in shares.items()
        if share.weight
    }
    rules = route.spec.rules
    weights = [
        {
            backend.target: backend.weight
            for backend in route.backends(rules[index])
            if backend.target in own and backend.weight != 0
        }
        for index in rules_of(route, own)
    ]
    return bool(wanted and weights) and wanted not in weights


def too_many_backends(route: HttpRoute, own: Set[Reference], needed: int) -> RoutingProblem | None:
    """Return a problem if a rule of a user's route has no room for `needed` backends of raybus.

    The API server would reject the route: a rule may have at most 16 backends.
    """
    for index in rules_of(route, own):
        backends = route.backends(route.spec.rules[index])
        others = sum(backend.target not in own for backend in backends)
        if others + needed > MAX_BACKENDS:
            text = (
                f"has {others} other backends in spec.rules[{index}], and RayService "
                f"needs room for {needed}: "
                f"a rule holds at most {MAX_BACKENDS}; move some of the others to another rule"
            )
            return Problem(RoutingCode.NO_ROOM, text)
    return None


def _records(service: RayService, routes: Iterable[HttpRoute | None]) -> Iterator[Record]:
    """Yield the traffic records on the routes that certainly belong to this RayService.

    raybus may write such a route, or could write it before, and no other RayService uses it.
    """
    marks = owner.marks(service.metadata.name)
    for route in (some_route for some_route in routes if some_route is not None):
        problem, is_marked = refusal(service, route), marks.items() <= route.metadata.labels.items()
        if problem is None or (problem.code is RoutingCode.NOT_PERMITTED and is_marked):
            yield traffic_record.of_route(route)


def _permitted(have: ObjectMeta) -> list[str]:
    """Return the RayServices that a route's annotation permits, without illegal names.

    Messages to users quote the names, and an illegal name could contain anything.
    """
    parts = (part.strip() for part in have.annotations.get(labels.ROUTE_PERMITS, "").split(","))
    return [part for part in parts if not dns_1123_subdomain_problems(part)]


def _not_permitted(service: RayService, route: HttpRoute) -> RoutingProblem:
    """Return the problem that a route's owner has not permitted its use, with the remedy."""
    name, meta, permitted = service.metadata.name, route.metadata, _permitted(route.metadata)
    is_there = labels.ROUTE_PERMITS in meta.annotations
    kept = (
        [",".join(permitted)]
        if 0 < len(permitted) <= _LISTED
        else ["<the names that it has>"]
        if permitted
        else []
    )
    command = f"kubectl annotate {HTTP_ROUTE.kind.lower()} {meta.name} -n {meta.namespace}"
    text = (
        f"may not be used: its annotation {labels.ROUTE_PERMITS} "
        f"{'does not name' if is_there else 'is missing, so it does not name'} RayService "
        f"{name}; the owner of the route "
        f"agrees with: {command} "
        f"{labels.ROUTE_PERMITS}={','.join((*kept, name))}{' --overwrite' if is_there else ''}"
    )
    return Problem(RoutingCode.NOT_PERMITTED, text)


def _given(service: RayService) -> str | None:
    text = service.metadata.annotations.get(labels.HTTP_ROUTE, "").strip()
    is_name = not dns_1123_subdomain_problems(text)
    is_good = is_name and text != names.http_route(service.metadata.name)
    return text if is_good else None
