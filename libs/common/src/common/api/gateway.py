"""Gateways and routes as far as a decision reads them, and whether their controller has accepted them.

"Ready" is what KubeRay asks for (spec rayservice §9.1, §9.2), and more for a route: the controller must have seen this very
generation of it, because an old acceptance proves nothing about new weights (§8.10 G3).
"""

from typing import Final

import msgspec

from common.api.core import View
from common.api.meta import Condition, ObjectMeta
from common.api.opaque import Json

GATEWAY_CONDITIONS: Final = ("Accepted", "Programmed")
ROUTE_CONDITIONS: Final = ("Accepted", "ResolvedRefs")


class Listener(View, frozen=True, kw_only=True):
    """A port that a Gateway listens on."""

    name: str = ""
    protocol: str = ""
    port: int = 0


class GatewaySpec(View, frozen=True, kw_only=True):
    """What a Gateway was asked to be."""

    gateway_class_name: str = ""
    listeners: tuple[Listener, ...] = ()


class GatewayStatus(View, frozen=True, kw_only=True):
    """What its controller reports."""

    conditions: tuple[Condition, ...] = ()


class Gateway(View, frozen=True, kw_only=True):
    """A Gateway."""

    metadata: ObjectMeta
    spec: GatewaySpec = GatewaySpec()
    status: GatewayStatus = GatewayStatus()


class ParentRef(View, frozen=True, kw_only=True):
    """The Gateway that a route hangs on, or one listener of it."""

    name: str = ""
    namespace: str | None = None
    kind: str | None = None
    section_name: str | None = None
    port: int | None = None


class BackendRef(View, frozen=True, kw_only=True):
    """A Service that a route sends a share of its requests to."""

    name: str = ""
    namespace: str | None = None
    port: int | None = None
    weight: int | None = None


class RouteParentStatus(View, frozen=True, kw_only=True):
    """What one Gateway's controller reports of a route."""

    parent_ref: ParentRef = ParentRef()
    conditions: tuple[Condition, ...] = ()


class RouteStatus(View, frozen=True, kw_only=True):
    """What all controllers report of a route."""

    parents: tuple[RouteParentStatus, ...] = ()


class RouteRule(View, frozen=True, kw_only=True):
    """Where requests go."""

    matches: tuple[Json, ...] = ()
    filters: tuple[Json, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()


class RouteSpec(View, frozen=True, kw_only=True):
    """What a route was asked to do."""

    parent_refs: tuple[ParentRef, ...] = ()
    rules: tuple[RouteRule, ...] = ()


class Route(View, frozen=True, kw_only=True, dict=True):
    """A route of any kind; `spec_json` keeps what users added to it."""

    metadata: ObjectMeta
    spec_json: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="spec")
    status: RouteStatus = RouteStatus()

    @property
    def spec(self) -> RouteSpec:
        """The part of the spec that decisions read."""
        return msgspec.json.decode(self.spec_json, type=RouteSpec, strict=False)


class HttpRoute(Route, frozen=True, kw_only=True, dict=True):
    """An HTTPRoute."""


class GrpcRoute(Route, frozen=True, kw_only=True, dict=True):
    """A GRPCRoute."""


def gateway_problem(gateway: Gateway | None) -> str | None:
    """Return why a Gateway does not take requests, None when it does."""
    if gateway is None:
        return "does not exist"
    return _problem(gateway.status.conditions, GATEWAY_CONDITIONS, generation=0)


def route_problem(route: Route) -> str | None:
    """Return why a Gateway does not follow a route as it is now, None when each of its parents does."""
    if not route.spec.parent_refs:
        return "names no Gateway in spec.parentRefs"
    return next((why for each in route.spec.parent_refs if (why := _parent_problem(route, each)) is not None), None)


def lagging_parents(route: Route) -> tuple[tuple[str, str], ...]:
    """Return the Gateways, by namespace and name, that accepted a route and have not seen it as it is now."""
    meta = route.metadata
    return tuple(
        (each.parent_ref.namespace or meta.namespace, each.parent_ref.name)
        for each in route.status.parents
        for condition in each.conditions
        if condition.type == "Accepted"
        and condition.status == "True"
        and condition.observed_generation < meta.generation
    )


def _parent_problem(route: Route, parent: ParentRef) -> str | None:
    """Return why one parent does not accept a route; several controllers may report on the same parent."""
    meta = route.metadata
    parents = [each for each in route.status.parents if _identity(each.parent_ref, meta) == _identity(parent, meta)]
    problems = (_problem(each.conditions, ROUTE_CONDITIONS, generation=meta.generation) for each in parents)
    return next((why for why in problems if why is not None), None if parents else "is not accepted yet")


def _identity(parent: ParentRef, meta: ObjectMeta) -> tuple[str, str, str | None, int | None]:
    return parent.namespace or meta.namespace, parent.name, parent.section_name, parent.port


def _problem(conditions: tuple[Condition, ...], wanted: tuple[str, ...], *, generation: int) -> str | None:
    held = {each.type: each for each in conditions}
    for kind in wanted:
        found = held.get(kind)
        if found is None:
            return f"is not {kind} yet"
        if found.status != "True":
            why = ": ".join(part for part in (found.reason, found.message) if part)
            return f"is not {kind} ({why})" if why else f"is not {kind}"
        if found.observed_generation < generation:
            return f"is not {kind} yet as it is now"
    return None
