"""The HTTPRoute that carries the traffic of a RayService, and what keeps it from doing so: one answer for two services.

It is ours, `<RayService>-httproute` on `<RayService>-gateway`, or the user's, which `raybus.io/http-route` names. Gateway, hostnames,
matches and filters of a user's route are theirs, and of the backends only ours are written. Their rules
for us are those that send to one of our Services (group, kind, namespace and name); if there is none,
those without backends; else the only rule there is.

A route is written only with a right to it: the RayService owns it, or its annotation `raybus.io/rayservice` names the RayService
(ADR 12). A backend is ours because of what exists and what the record has, never because of the shape of its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache
from typing import Final

import msgspec
import re2

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
from common.api.meta import ObjectMeta
from common.api.ray_service import RayService
from common.api.reference import Reference
from common.errors import Problem
from common.kube.resources import HTTP_ROUTE
from common.ray import owner
from common.upgrade import traffic_record
from common.upgrade.traffic_record import Record

Place = tuple[str, str]
"""Namespace and name."""
MOST_BACKENDS: Final = 16
"""Limits of the Gateway API for a rule."""
_LONGEST_NAME: Final = 253
_NAME: Final = re2.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LISTED: Final = 10
"""Names that a message lists at most."""


def name_of(service: RayService) -> str:
    """Return the name of the HTTPRoute that carries the traffic."""
    return _given(service) or names.http_route(service.metadata.name)


def is_users(service: RayService) -> bool:
    """Return whether the user brought the route."""
    return _given(service) is not None


def odd_name(service: RayService) -> str | None:
    """Return what is wrong with the name that the user gave; without a good one the route is ours."""
    text = service.metadata.annotations.get(labels.HTTP_ROUTE)
    if text is None or _given(service) is not None:
        return None
    ours = names.http_route(service.metadata.name)
    if text.strip() == ours:
        return f'{labels.HTTP_ROUTE} "{text}" is the name of the route that raybus makes; give yours another name'
    return f'{labels.HTTP_ROUTE} "{text}" is not the name of an HTTPRoute in this namespace; {ours} is used'


def parents_of(service: RayService, route: HttpRoute | None) -> tuple[Place, ...]:
    """Return the Gateways that must take requests for the traffic to flow."""
    meta = service.metadata
    if not is_users(service):
        return ((meta.namespace, names.gateway(meta.name)),)
    if route is None:
        return ()
    targets = (each.target(meta.namespace) for each in route.spec.parent_refs)
    return tuple(each.place for each in targets if each.is_gateway)


def gateway_trouble(
    service: RayService, route: HttpRoute | None, gateways: Mapping[Place, Gateway | None]
) -> RoutingProblem | None:
    """Return why a Gateway takes no requests, with its name."""
    for namespace, name in parents_of(service, route):
        gateway = gateways.get((namespace, name))
        problem = gateway_problem(gateway)
        if gateway is not None and not is_users(service):
            problem = not_ours(service.metadata, gateway.metadata) or problem
        if problem is not None:
            hint = ""  # a Gateway of a class that no controller serves is never accepted
            if gateway is not None and problem.code is RoutingCode.NOT_ACCEPTED:
                hint = f" (gatewayClassName {gateway.spec.gateway_class_name}: does a controller serve it?)"
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
    """Return why the traffic does not follow the route as it is now, with its name.

    `clusters` are those that exist. `is_settled`: see `common.api.gateway.route_problem`.
    """
    where = f"HTTPRoute {service.metadata.namespace}/{name_of(service)}"
    if route is None:
        return Problem(RoutingCode.MISSING, f"{where} does not exist")
    problem = refusal(service, route)
    if problem is None and is_users(service):
        own, status = own_backends(service, clusters, (route,)), service.status
        roles = (status.active_service_status, status.pending_service_status)
        if rules_of(route, own):
            problem = crowded(
                route, own, max(1, sum(bool(each.ray_cluster_name) for each in roles))
            )
        else:
            need = f"one with a backendRef to Service {names.serve_service(service.metadata.name)}"
            text = f"has no rule for this service: add a rule without backendRefs, or {need}"
            problem = Problem(RoutingCode.NO_RULE, text)
    problem = problem or route_problem(route, is_settled=is_settled)
    return None if problem is None else problem.at(where)


def refusal(service: RayService, route: HttpRoute) -> RoutingProblem | None:
    """Return why a route may not be written for a RayService, and what to do; None when it may be."""
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
    """Return that an object under the name of ours has another owner; raybus leaves it alone."""
    if owner.owns(service, have):
        return None
    text = f"exists and is not owned by RayService {service.name}: delete it, or give the RayService another name"
    return Problem(RoutingCode.NOT_OWNED, text)


def record_of(service: RayService, routes: Iterable[HttpRoute | None]) -> Record:
    """Return what is known of a RayService: the newest of its records on these routes, else the mirror.

    A route that only follows may keep an old record, because its write was refused. Records are never mixed: a cluster that the
    newest does not name any more has nothing, whatever the mirror still has.
    """
    held = [each for each in _records(service, routes) if each.clusters]
    return max(
        held, key=lambda each: each.changed_at or EARLIEST, default=None
    ) or traffic_record.of_status(service)


def own_backends(
    service: RayService, clusters: Iterable[str] = (), routes: Iterable[HttpRoute | None] = ()
) -> frozenset[Reference]:
    """Return the Serve Services of a RayService and of its clusters: those that exist, and those that a record still names.

    A name in the status alone does not count: its writer could have the backends of others replaced.
    """
    recorded = (name for each in _records(service, routes) for name in each.clusters)
    owners = (service.metadata.name, *clusters, *recorded)
    return frozenset(serve_service(service.metadata.namespace, each) for each in owners)


def serve_service(namespace: str, owner: str) -> Reference:
    """Return the Serve Service of a RayService or of a cluster."""
    return Reference.service(namespace, names.serve_service(owner))


def rules_of(route: HttpRoute, own: Set[Reference]) -> tuple[int, ...]:
    """Return the positions of the rules of a user's route that send requests to a RayService with these backends."""
    rules = route.spec.rules
    ours = tuple(
        index
        for index, rule in enumerate(rules)
        if any(each.target in own for each in route.backends(rule))
    )
    redirects = [
        any(each.get("type") == "RequestRedirect" for each in rule.filters) for rule in rules
    ]
    bare = tuple(
        index for index, rule in enumerate(rules) if not rule.backend_refs and not redirects[index]
    )
    return ours or bare or ((0,) if redirects == [False] else ())


def is_overwritten(route: HttpRoute, own: Set[Reference]) -> bool:
    """Return whether another writer replaced our backends: weights and record are written in one request, and do not agree."""
    shares, namespace = traffic_record.of_route(route).clusters, route.metadata.namespace
    wanted = {
        serve_service(namespace, name): share.weight
        for name, share in shares.items()
        if share.weight
    }
    rules = route.spec.rules
    held = [
        {
            each.target: each.weight
            for each in route.backends(rules[index])
            if each.target in own and each.weight != 0
        }
        for index in rules_of(route, own)
    ]
    return bool(wanted and held) and wanted not in held


def crowded(route: HttpRoute, own: Set[Reference], needed: int) -> RoutingProblem | None:
    """Return why a user's route has no room for so many backends of ours: the API server would refuse them."""
    for index in rules_of(route, own):
        backends = route.backends(route.spec.rules[index])
        others = sum(each.target not in own for each in backends)
        if others + needed > MOST_BACKENDS:
            text = (
                f"has {others} other backends in spec.rules[{index}], and RayService needs room for {needed}: "
                f"a rule holds at most {MOST_BACKENDS}; move some of the others to another rule"
            )
            return Problem(RoutingCode.NO_ROOM, text)
    return None


def _records(service: RayService, routes: Iterable[HttpRoute | None]) -> Iterator[Record]:
    """Yield the records that can only be ours: on routes that may be written, or were, and have no other owner or holder."""
    marks = owner.marks(service.metadata.name)
    for route in (each for each in routes if each is not None):
        problem, is_marked = refusal(service, route), marks.items() <= route.metadata.labels.items()
        if problem is None or (problem.code is RoutingCode.NOT_PERMITTED and is_marked):
            yield traffic_record.of_route(route)


def _permitted(have: ObjectMeta) -> list[str]:
    """Return the names in the annotation; what cannot be one is never shown."""
    parts = (each.strip() for each in have.annotations.get(labels.ROUTE_PERMITS, "").split(","))
    return [each for each in parts if _is_name(each)]


def _not_permitted(service: RayService, route: HttpRoute) -> RoutingProblem:
    """Return that the owner of a route did not agree, with the command by which they do."""
    name, meta, held = service.metadata.name, route.metadata, _permitted(route.metadata)
    is_there = labels.ROUTE_PERMITS in meta.annotations
    kept = (
        [",".join(held)]
        if 0 < len(held) <= _LISTED
        else ["<the names that it has>"]
        if held
        else []
    )
    command = f"kubectl annotate {HTTP_ROUTE.kind.lower()} {meta.name} -n {meta.namespace}"
    text = (
        f"may not be used: its annotation {labels.ROUTE_PERMITS} "
        f"{'does not name' if is_there else 'is missing, so it does not name'} RayService {name}; the owner of the route "
        f"agrees with: {command} {labels.ROUTE_PERMITS}={','.join((*kept, name))}{' --overwrite' if is_there else ''}"
    )
    return Problem(RoutingCode.NOT_PERMITTED, text)


def _given(service: RayService) -> str | None:
    text = service.metadata.annotations.get(labels.HTTP_ROUTE, "").strip()
    is_good = _is_name(text) and text != names.http_route(service.metadata.name)
    return text if is_good else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_NAME and _has_form_of_name(text)


@lru_cache(maxsize=1024)
def _has_form_of_name(text: str) -> bool:
    """Match a text; each reconcile asks about the same few names many times."""
    return _NAME.fullmatch(text) is not None
