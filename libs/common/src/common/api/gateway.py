"""Gateways and routes as far as a decision reads them, and whether their controller has accepted them.

"Ready" is what KubeRay asks for (spec rayservice §9.1, §9.2), and more for a route: a controller must
have seen this very generation of it, because an old acceptance proves nothing about new weights
(§8.10 G3). Several controllers may report on one parent, and a controller that left it may leave its
report. ADR 43 says which report counts.
"""

from enum import StrEnum
from functools import cached_property

import msgspec

from common.api.meta import ApiStruct, Condition, ObjectMeta
from common.api.opaque import Json
from common.api.reference import GATEWAY_GROUP, Reference
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

    _group: str | None = msgspec.field(default=None, name="group")
    _kind: str | None = msgspec.field(default=None, name="kind")
    _namespace: str | None = msgspec.field(default=None, name="namespace")
    _name: str = msgspec.field(default="", name="name")
    section_name: str | None = None
    port: int | None = None

    def target(self, namespace: str) -> Reference:
        """Return what a route of this namespace refers to."""
        group = GATEWAY_GROUP if self._group is None else self._group
        kind = self._kind or "Gateway"
        return Reference(group, kind, self._namespace or namespace, self._name)

    def place(self, namespace: str) -> "Place":
        """Return the parent, and the listener of it if the route names one."""
        return self.target(namespace), self.section_name, self.port


class Backend(msgspec.Struct, frozen=True):
    """What a rule of a route sends a share of its requests to."""

    target: Reference
    port: int | None
    weight: int


class BackendRef(ApiStruct, frozen=True, kw_only=True):
    """A backend as a rule has it."""

    _group: str | None = msgspec.field(default=None, name="group")
    _kind: str | None = msgspec.field(default=None, name="kind")
    _namespace: str | None = msgspec.field(default=None, name="namespace")
    _name: str = msgspec.field(default="", name="name")
    port: int | None = None
    weight: int | None = None

    @classmethod
    def of_service(cls, namespace: str, name: str, *, port: int, weight: int) -> "BackendRef":
        """Return the reference to a port of a Service."""
        return cls(_namespace=namespace, _name=name, port=port, weight=weight)

    def resolved(self, namespace: str) -> Backend:
        """Return the backend of a route of this namespace; its default weight is 1."""
        kind, group = self._kind or "Service", self._group or ""
        target = Reference(group, kind, self._namespace or namespace, self._name)
        return Backend(target, self.port, 1 if self.weight is None else self.weight)


Place = tuple[Reference, str | None, int | None]
"""A parent with the name and the port of one of its listeners."""


class RouteParentStatus(ApiStruct, frozen=True, kw_only=True):
    """What one Gateway's controller reports of a route."""

    parent_ref: ParentRef = ParentRef()
    controller_name: str = ""
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

    def backends(self, rule: RouteRule) -> tuple[Backend, ...]:
        """Return the backends of a rule of this route."""
        return tuple(each.resolved(self.metadata.namespace) for each in rule.backend_refs)


class HttpRoute(Route, frozen=True, kw_only=True, dict=True):
    """An HTTPRoute."""


class GrpcRoute(Route, frozen=True, kw_only=True, dict=True):
    """A GRPCRoute."""


def gateway_problem(gateway: Gateway | None) -> RoutingProblem | None:
    """Return why a Gateway does not take requests, None when it does."""
    if gateway is None:
        return Problem(RoutingCode.MISSING, "does not exist")
    return _problem(gateway.status.conditions, "Accepted", "Programmed", generation=0)


def route_problem(route: Route, *, is_settled: bool) -> RoutingProblem | None:
    """Return why a Gateway does not follow a route as it is now, None when each parent does.

    Of the reports on one parent those count that are about the newest state (`_decisive`), and one
    without a problem is enough. `is_settled` is whether the last change by raybus is so old that a
    report without a generation counts for it.
    """
    meta, wanted = route.metadata, route.spec.parent_refs
    if not wanted:
        return Problem(RoutingCode.NO_PARENT, "names no Gateway in spec.parentRefs")
    for parent in wanted:
        place = parent.place(meta.namespace)
        held = [
            each for each in route.status.parents if each.parent_ref.place(meta.namespace) == place
        ]
        if not held:
            text = f"is not accepted yet: no controller reports on {_shown(parent, meta)}"
            return Problem(RoutingCode.NOT_ACCEPTED, text, transient=True)
        problems = [
            _report_problem(each, meta, is_settled=is_settled) for each in _decisive(held, meta)
        ]
        if None not in problems:
            return problems[0]
    return None


def lagging_parents(route: Route, *, is_settled: bool) -> tuple[Reference, ...]:
    """Return the parents that may still follow an earlier state of a route.

    These have accepted the route, and no accepting report is about the route as it is now.
    """
    meta = route.metadata
    accepting = [
        each
        for each in route.status.parents
        if any((held.type, held.status) == ("Accepted", "True") for held in each.conditions)
    ]
    behind: dict[Place, bool] = {}
    for each in accepting:
        stated = _stated_generation(each)
        is_current = stated >= meta.generation if stated else is_settled
        place = each.parent_ref.place(meta.namespace)
        behind[place] = behind.get(place, True) and not is_current
    return tuple(place[0] for place, is_behind in behind.items() if is_behind)


def _shown(parent: ParentRef, meta: ObjectMeta) -> str:
    target, section, _ = parent.place(meta.namespace)
    return f"{target}" if section is None else f"{target}, listener {section}"


def _stated_generation(report: RouteParentStatus) -> int:
    """Return the generation that a report is about; 0 for one that states none."""
    return max((each.observed_generation for each in report.conditions), default=0)


def _decisive(reports: list[RouteParentStatus], meta: ObjectMeta) -> list[RouteParentStatus]:
    """Return the reports on one parent that count.

    A report about the present generation counts before one that states no generation, and that one
    before a report about an earlier generation: its controller may have left the Gateway.
    """

    def rank(report: RouteParentStatus) -> int:
        stated = _stated_generation(report)
        return 2 if stated >= meta.generation else 1 if stated == 0 else 0

    best = max(map(rank, reports))
    return [each for each in reports if rank(each) == best]


def _report_problem(
    report: RouteParentStatus, meta: ObjectMeta, *, is_settled: bool
) -> RoutingProblem | None:
    """Return the problem that one controller reports, with the controller and the parent.

    The generation is named only where the controller is behind: the text of a refusal stays the
    same while the controller takes in further generations.
    """
    stated = _stated_generation(report)
    problem = _problem(
        report.conditions,
        "Accepted",
        "ResolvedRefs",
        generation=meta.generation,
        is_settled=is_settled,
    )
    if problem is None:
        return None
    controller = f"controller {report.controller_name or 'without a name'}"
    where = _shown(report.parent_ref, meta)
    text = f"{problem.message}: {controller} of {where}"
    if problem.transient:
        about = f"generation {stated} of {meta.generation}" if stated else "no observedGeneration"
        text = f"{problem.message}: {controller} reports {about} for {where}"
    return msgspec.structs.replace(problem, message=text)


def _problem(
    conditions: tuple[Condition, ...], *wanted: str, generation: int, is_settled: bool = True
) -> RoutingProblem | None:
    """Return the first condition that does not hold for a generation.

    A condition without a generation holds for the present one once `is_settled`.
    """
    held = {each.type: each for each in conditions}
    for kind in wanted:
        code, found = RoutingCode(f"Not{kind}"), held.get(kind)
        if found is None:
            return Problem(code, f"is not {kind} yet", transient=True)
        if found.status != "True":
            why = ": ".join(part for part in (found.reason, found.message) if part)
            return Problem(code, f"is not {kind} ({why})" if why else f"is not {kind}")
        stated = found.observed_generation
        if stated < generation and not (stated == 0 and is_settled):
            return Problem(code, f"is not {kind} yet as it is now", transient=True)
    return None
