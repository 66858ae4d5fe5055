"""Why does the Gateway not let an upgrade go on? KubeRay leaves it to its log (spec rayservice §9.3; acceptance 49)."""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from common import labels
from common.api.gateway import RoutingCode, RoutingProblem, route_problem
from common.upgrade import weighted_route
from service_reconciler import decided
from service_reconciler.observed import Observed
from service_reconciler.reasons import ConditionType, EventReason, Reason
from service_reconciler.serve.problems import ServiceProblem

SETTLES_WITHIN: Final = timedelta(seconds=5)
"""Objects that were asked for just now need a moment."""
REMEMBERED: Final = timedelta(minutes=15)
"""How long a condition reports that another writer replaced our backends: a tool that does so does it again."""


def find(observed: Observed, *, now: datetime) -> ServiceProblem | None:
    """Return what is wrong with the Gateway or the route of a service with traffic that moves in steps."""
    if not observed.is_incremental or not _is_late(observed, now=now):
        return None
    return (
        _unusable(observed) or _gateway_problem(observed) or _route_problem(observed) or _overwritten(observed, now=now)
    )


def _unusable(observed: Observed) -> ServiceProblem | None:
    """Return why the route cannot be written, or that the user's route does not exist."""
    service, route = observed.service, observed.route
    where = f"HTTPRoute {service.metadata.namespace}/{weighted_route.name_of(service)}"
    if route is None:
        text = f"waiting: {where} does not exist; the annotation {labels.HTTP_ROUTE} names it"
        return _problem(EventReason.ROUTE_NOT_READY, text) if weighted_route.is_users(service) else None
    if (why := weighted_route.refusal(service, route)) is None:
        return None
    return _problem(EventReason.ROUTE_NOT_PERMITTED, f"waiting: {where} {why.message}")


def _gateway_problem(observed: Observed) -> ServiceProblem | None:
    problem = weighted_route.gateway_trouble(observed.service, observed.route, observed.gateways)
    if problem is None:
        return None
    hint = " (is the Gateway API installed?)" if problem.code is RoutingCode.MISSING else ""
    return _problem(EventReason.GATEWAY_NOT_READY, f"waiting: {problem.message}{hint}")


def _route_problem(observed: Observed) -> ServiceProblem | None:
    if observed.route is None or (problem := route_trouble(observed)) is None:
        return _grpc_problem(observed)
    return None if problem.transient else _problem(EventReason.ROUTE_NOT_READY, f"waiting: {problem.message}")


def _overwritten(observed: Observed, *, now: datetime) -> ServiceProblem | None:
    """Return that another tool replaced our backends a while ago; traffic-manager wrote them again, with an Event."""
    held = observed.record.overwritten
    if held is UNSET or observed.route is None or now - held.at >= REMEMBERED:
        return None
    meta = observed.route.metadata
    text = (
        f"HTTPRoute {meta.namespace}/{meta.name}: field manager {held.by} replaced spec.rules, and requests failed until raybus had "
        "written its backends again; let that tool leave spec.rules alone"
    )
    return msgspec.structs.replace(_problem(EventReason.ROUTE_OVERWRITTEN, text), is_reported=True)


def route_trouble(observed: Observed) -> RoutingProblem | None:
    """Return why the traffic does not follow the route as it is now."""
    clusters = [each.metadata.name for each in observed.clusters]
    return weighted_route.route_trouble(observed.service, observed.route, clusters)


def _grpc_problem(observed: Observed) -> ServiceProblem | None:
    route = observed.grpc_route
    if route is None:
        return None
    meta = observed.service.metadata
    problem = weighted_route.not_ours(meta, route.metadata) or route_problem(route)
    if problem is None or problem.transient:
        return None
    text = f"waiting: GRPCRoute {route.metadata.namespace}/{route.metadata.name} {problem.message}"
    return _problem(EventReason.GRPC_ROUTE_NOT_READY, text)


def _problem(event: EventReason, text: str) -> ServiceProblem:
    return ServiceProblem(event=event, message=text, code=Reason.GATEWAY_NOT_READY)


def _is_late(observed: Observed, *, now: datetime) -> bool:
    since = decided.changed_at(observed.service, ConditionType.UPGRADE_IN_PROGRESS)
    return since is not None and now - since >= SETTLES_WITHIN
