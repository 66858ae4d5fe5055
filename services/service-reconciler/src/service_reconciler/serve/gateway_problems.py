"""Why does the Gateway not let an upgrade go on? KubeRay leaves it to its log (spec rayservice §9.3; acceptance 49)."""

from datetime import datetime, timedelta
from typing import Final

from common import names
from common.api.gateway import gateway_problem, route_problem
from service_reconciler.observed import Observed
from service_reconciler.reasons import ConditionType, EventReason
from service_reconciler.serve.problems import Problem
from service_reconciler.status import conditions

PATIENCE: Final = timedelta(seconds=5)
"""Objects that were asked for just now need a moment."""


def find(observed: Observed, *, now: datetime) -> Problem | None:
    """Return what is wrong with the Gateway or the route of a service whose traffic moves in steps."""
    if not observed.is_incremental or not _is_late(observed, now=now):
        return None
    meta, gateway, route = observed.service.metadata, observed.gateway, observed.route
    name = names.gateway(meta.name)
    if gateway is None:
        text = f"waiting: Gateway {meta.namespace}/{name} does not exist (is the Gateway API installed?)"
        return Problem(reason=EventReason.GATEWAY_NOT_READY, text=text)
    if (problem := gateway_problem(gateway)) is not None:
        text = f"waiting: Gateway {meta.namespace}/{name} {problem}"
        return Problem(reason=EventReason.GATEWAY_NOT_READY, text=text)
    if route is None or (problem := route_problem(route.metadata, route.status, name)) is None:
        return None
    if problem.endswith(("yet", "as it is now")):
        return None
    text = f"waiting: HTTPRoute {meta.namespace}/{route.metadata.name} {problem}"
    return Problem(reason=EventReason.ROUTE_NOT_READY, text=text)


def _is_late(observed: Observed, *, now: datetime) -> bool:
    held = conditions.find(observed.service.status.conditions, ConditionType.UPGRADE_IN_PROGRESS)
    return held is not None and now - held.last_transition_time >= PATIENCE
