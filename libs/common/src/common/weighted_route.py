"""Which HTTPRoute carries the traffic of a RayService, and what keeps it from doing so: one answer for two services.

It is ours, `<RayService>-httproute` on `<RayService>-gateway`, or the one that the user names in `raybus.io/http-route`; then
Gateway, hostnames, matches and filters are theirs, and of the backends only ours are written. Their rules for us are those
that send to one of our Services; if there is none, those without backends; else the only rule there is.
"""

import re
from collections.abc import Mapping
from typing import Final

from common import labels, names, traffic_record
from common.api.gateway import Gateway, HttpRoute, RouteRule, gateway_problem, route_problem
from common.api.ray_service import RayService
from common.kube.resources import GATEWAY

Place = tuple[str, str]
"""Namespace and name."""
NO_RULE: Final = (
    "has no rule for this service: add a rule without backendRefs, or one with a backendRef to Service {service}"
)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_REDIRECT: Final = "RequestRedirect"


def name_of(service: RayService) -> str:
    """Return the name of the HTTPRoute that carries the traffic."""
    return _given(service) or names.http_route(service.metadata.name)


def is_users(service: RayService) -> bool:
    """Tell whether the user brought the route."""
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
    return tuple(
        (each.namespace or meta.namespace, each.name)
        for each in route.spec.parent_refs
        if each.kind in {None, GATEWAY.kind}
    )


def gateway_trouble(
    service: RayService, route: HttpRoute | None, gateways: Mapping[Place, Gateway | None]
) -> str | None:
    """Return why a Gateway takes no requests, with its name."""
    for namespace, name in parents_of(service, route):
        gateway = gateways.get((namespace, name))
        problem = gateway_problem(gateway)
        if problem is not None:
            return f"Gateway {namespace}/{name} {problem}{_class_of(gateway, problem)}"
    return None


def route_trouble(service: RayService, route: HttpRoute | None) -> str | None:
    """Return why the traffic does not follow the route as it is now, with its name."""
    meta = service.metadata
    where = f"HTTPRoute {meta.namespace}/{name_of(service)}"
    if route is None:
        return f"{where} does not exist"
    if (other := other_holder(service, route)) is not None:
        return f"{where} carries the traffic of RayService {other}; a route carries that of one"
    if is_users(service) and not rules_of(route, meta.name):
        return f"{where} {NO_RULE.format(service=names.serve_service(meta.name))}"
    problem = route_problem(route)
    return None if problem is None else f"{where} {problem}"


def other_holder(service: RayService, route: HttpRoute) -> str | None:
    """Return the other RayService whose traffic a route carries: its record is there, and there is room for one."""
    name = route.metadata.labels.get(labels.ORIGIN_NAME, service.metadata.name)
    is_held = traffic_record.ANNOTATION in route.metadata.annotations
    return name if is_held and name != service.metadata.name else None


def rules_of(route: HttpRoute, service: str) -> tuple[int, ...]:
    """Return the positions of the rules of a user's route that send requests to a RayService."""
    rules = route.spec.rules
    ours = tuple(
        index for index, rule in enumerate(rules) if any(is_ours(each.name, service) for each in rule.backend_refs)
    )
    bare = tuple(index for index, rule in enumerate(rules) if _is_bare(rule))
    return ours or bare or ((0,) if len(rules) == 1 and not _redirects(rules[0]) else ())


def is_ours(backend: str, service: str) -> bool:
    """Tell whether a backend is the Serve Service of a RayService or of one of its clusters."""
    suffix = names.serve_service("")
    if not backend.startswith(service) or not backend.endswith(suffix):
        return False
    rest = backend[len(service) : -len(suffix)]
    return not rest or re.fullmatch(r"(-raycluster)?-[a-z0-9]{5}", rest) is not None


def _class_of(gateway: Gateway | None, problem: str) -> str:
    """Return the class where it may be what is wrong: nobody takes a Gateway of a class that no controller serves."""
    if gateway is None or not problem.startswith("is not Accepted"):
        return ""
    return f" (gatewayClassName {gateway.spec.gateway_class_name}: does a controller serve it?)"


def _is_bare(rule: RouteRule) -> bool:
    return not rule.backend_refs and not _redirects(rule)


def _redirects(rule: RouteRule) -> bool:
    return any(each.get("type") == _REDIRECT for each in rule.filters)


def _given(service: RayService) -> str | None:
    text = service.metadata.annotations.get(labels.HTTP_ROUTE, "").strip()
    is_good = _NAME.fullmatch(text) is not None and text != names.http_route(service.metadata.name)
    return text if is_good else None
