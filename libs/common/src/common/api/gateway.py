"""Gateways and routes as far as a decision reads them, and whether their controller has accepted them.

"Ready" is what KubeRay asks for (spec rayservice §9.1, §9.2), and more for a route: the controller must have seen this very
generation of it, because an old acceptance proves nothing about new weights (§8.10 G3).
"""

from enum import StrEnum
from functools import cached_property

import msgspec

from common.api.meta import ApiStruct, Condition, ObjectMeta
from common.api.opaque import Json
from common.errors import Problem


class RoutingCode(StrEnum):
    """The kinds of problems of Gateways and routes; those after the blank line are of routes and of what raybus may do with them."""

    MISSING = "Missing"
    NOT_ACCEPTED = "NotAccepted"
    NOT_PROGRAMMED = "NotProgrammed"
    NOT_RESOLVED = "NotResolvedRefs"

    NO_PARENT = "NoParent"
    NO_RULE = "NoRule"
    NO_ROOM = "NoRoom"
    NOT_OWNED = "NotOwned"
    NOT_PERMITTED = "NotPermitted"
    IN_USE = "InUse"


RoutingProblem = Problem[RoutingCode]


class Listener(ApiStruct, frozen=True, kw_only=True):
    """A port that a Gateway listens on."""

    name: str = ""
    protocol: str = ""
    port: int = 0


class GatewaySpec(ApiStruct, frozen=True, kw_only=True):
    """What a Gateway was asked to be."""

    gateway_class_name: str = ""
    listeners: tuple[Listener, ...] = ()


class GatewayStatus(ApiStruct, frozen=True, kw_only=True):
    """What its controller reports."""

    conditions: tuple[Condition, ...] = ()


class Gateway(ApiStruct, frozen=True, kw_only=True):
    """A Gateway."""

    metadata: ObjectMeta
    spec: GatewaySpec = GatewaySpec()
    status: GatewayStatus = GatewayStatus()


class ParentRef(ApiStruct, frozen=True, kw_only=True):
    """The Gateway that a route hangs on, or one listener of it."""

    name: str = ""
    namespace: str | None = None
    kind: str | None = None
    section_name: str | None = None
    port: int | None = None


class BackendRef(ApiStruct, frozen=True, kw_only=True):
    """A Service that a route sends a share of its requests to."""

    name: str = ""
    namespace: str | None = None
    port: int | None = None
    weight: int | None = None


class RouteParentStatus(ApiStruct, frozen=True, kw_only=True):
    """What one Gateway's controller reports of a route."""

    parent_ref: ParentRef = ParentRef()
    conditions: tuple[Condition, ...] = ()


class RouteStatus(ApiStruct, frozen=True, kw_only=True):
    """What all controllers report of a route."""

    parents: tuple[RouteParentStatus, ...] = ()


class RouteRule(ApiStruct, frozen=True, kw_only=True):
    """Where requests go."""

    matches: tuple[Json, ...] = ()
    filters: tuple[Json, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()


class RouteSpec(ApiStruct, frozen=True, kw_only=True):
    """What a route was asked to do."""

    parent_refs: tuple[ParentRef, ...] = ()
    rules: tuple[RouteRule, ...] = ()


class Route(ApiStruct, frozen=True, kw_only=True, dict=True):
    """A route of any kind; `spec_json` keeps what users added to it."""

    metadata: ObjectMeta
    spec_json: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="spec")
    status: RouteStatus = RouteStatus()

    @cached_property
    def spec(self) -> RouteSpec:
        """The part of the spec that decisions read."""
        return msgspec.json.decode(self.spec_json, type=RouteSpec, strict=False)


class HttpRoute(Route, frozen=True, kw_only=True, dict=True):
    """An HTTPRoute."""


class GrpcRoute(Route, frozen=True, kw_only=True, dict=True):
    """A GRPCRoute."""


def gateway_problem(gateway: Gateway | None) -> RoutingProblem | None:
    """Return why a Gateway does not take requests, None when it does."""
    if gateway is None:
        return Problem(RoutingCode.MISSING, "does not exist")
    return _problem(gateway.status.conditions, "Accepted", "Programmed", generation=0)


def route_problem(route: Route) -> RoutingProblem | None:
    """Return why a Gateway does not follow a route as it is now, None when each of its parents does.

    Several controllers may report on the same parent.
    """
    meta, wanted = route.metadata, route.spec.parent_refs
    if not wanted:
        return Problem(RoutingCode.NO_PARENT, "names no Gateway in spec.parentRefs")
    for parent in wanted:
        held = [
            each
            for each in route.status.parents
            if _place(each.parent_ref, meta) == _place(parent, meta)
        ]
        if not held:
            return Problem(RoutingCode.NOT_ACCEPTED, "is not accepted yet", transient=True)
        for each in held:
            if problem := _problem(
                each.conditions, "Accepted", "ResolvedRefs", generation=meta.generation
            ):
                return problem
    return None


def lagging_parents(route: Route) -> tuple[tuple[str, str], ...]:
    """Return the Gateways, by namespace and name, that accepted a route and have not seen it as it is now."""
    return tuple(
        _place(each.parent_ref, route.metadata)[:2]
        for each in route.status.parents
        for condition in each.conditions
        if (condition.type, condition.status) == ("Accepted", "True")
        and condition.observed_generation < route.metadata.generation
    )


def _place(parent: ParentRef, meta: ObjectMeta) -> tuple[str, str, str | None, int | None]:
    return parent.namespace or meta.namespace, parent.name, parent.section_name, parent.port


def _problem(
    conditions: tuple[Condition, ...], *wanted: str, generation: int
) -> RoutingProblem | None:
    held = {each.type: each for each in conditions}
    for kind in wanted:
        code, found = RoutingCode(f"Not{kind}"), held.get(kind)
        if found is None:
            return Problem(code, f"is not {kind} yet", transient=True)
        if found.status != "True":
            why = ": ".join(part for part in (found.reason, found.message) if part)
            return Problem(code, f"is not {kind} ({why})" if why else f"is not {kind}")
        if found.observed_generation < generation:
            return Problem(code, f"is not {kind} yet as it is now", transient=True)
    return None
