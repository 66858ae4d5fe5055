"""Gateways and HTTPRoutes as far as a decision looks at them, and whether their controller has taken them.

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
    """What its controller says."""

    conditions: tuple[Condition, ...] = ()


class Gateway(View, frozen=True, kw_only=True):
    """A Gateway."""

    metadata: ObjectMeta
    spec: GatewaySpec = GatewaySpec()
    status: GatewayStatus = GatewayStatus()


class ParentRef(View, frozen=True, kw_only=True):
    """The Gateway that a route hangs on."""

    name: str = ""
    namespace: str | None = None


class BackendRef(View, frozen=True, kw_only=True):
    """A Service that a route sends a share of its requests to."""

    name: str = ""
    namespace: str | None = None
    port: int | None = None
    weight: int | None = None


class RouteParentStatus(View, frozen=True, kw_only=True):
    """What one Gateway's controller says of a route."""

    parent_ref: ParentRef = ParentRef()
    conditions: tuple[Condition, ...] = ()


class RouteStatus(View, frozen=True, kw_only=True):
    """What all controllers say of a route."""

    parents: tuple[RouteParentStatus, ...] = ()


class RouteRule(View, frozen=True, kw_only=True):
    """Where requests go."""

    matches: tuple[Json, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()


class RouteSpec(View, frozen=True, kw_only=True):
    """What a route was asked to do."""

    parent_refs: tuple[ParentRef, ...] = ()
    rules: tuple[RouteRule, ...] = ()


class HttpRoute(View, frozen=True, kw_only=True, dict=True):
    """An HTTPRoute; `spec_json` keeps what users added to it."""

    metadata: ObjectMeta
    spec_json: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="spec")
    status: RouteStatus = RouteStatus()

    @property
    def spec(self) -> RouteSpec:
        """The part of the spec that we look at."""
        return msgspec.json.decode(self.spec_json, type=RouteSpec, strict=False)


def gateway_problem(gateway: Gateway | None) -> str | None:
    """Return why a Gateway does not take requests, None when it does."""
    if gateway is None:
        return "does not exist"
    return _problem(gateway.status.conditions, GATEWAY_CONDITIONS, generation=0)


def route_problem(meta: ObjectMeta, status: RouteStatus, gateway: str) -> str | None:
    """Return why a Gateway does not follow a route as it is now, None when it does."""
    for parent in status.parents:
        where = parent.parent_ref
        if where.name == gateway and where.namespace in {None, meta.namespace}:
            return _problem(parent.conditions, ROUTE_CONDITIONS, generation=meta.generation)
    return "is not accepted yet"


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
