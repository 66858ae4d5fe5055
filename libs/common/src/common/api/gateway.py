"""The fields of Gateways and routes that raybus reads, and whether controllers accept them.

"Ready" means what KubeRay requires (spec rayservice §9.1, §9.2). For a route it also means that a
controller has observed its current generation, because an older acceptance proves nothing about new
weights (§8.10 G3). Several controllers may report on one parent, and a controller that no longer
manages the parent may leave an old report behind. ADR 43 says which report counts.
"""

from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from common.annotation_record import EARLIEST
from common.api.meta import ApiStruct, Condition, ObjectMeta
from common.api.opaque import Json
from common.api.reference import GATEWAY_GROUP, Reference
from common.errors import Problem


class RoutingCode(StrEnum):
    """Kinds of problems of Gateways and routes.

    `NO_PARENT`, `NO_RULE` and `NO_ROOM` are problems of routes. The codes after them concern
    objects that raybus may not change.
    """

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
    """A port of a Gateway."""

    name: str = ""
    protocol: str = ""
    port: int = 0


class GatewaySpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a Gateway."""

    gateway_class_name: str = ""
    listeners: tuple[Listener, ...] = ()


class GatewayStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a Gateway."""

    conditions: tuple[Condition, ...] = ()


class Gateway(ApiStruct, frozen=True, kw_only=True):
    """A Gateway."""

    metadata: ObjectMeta
    spec: GatewaySpec = GatewaySpec()
    status: GatewayStatus = GatewayStatus()


class SupportedFeature(ApiStruct, frozen=True, kw_only=True):
    """A feature of the Gateway API that a controller implements."""

    name: str = ""


class GatewayClassSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a GatewayClass: the name of its controller."""

    controller_name: str = ""


class GatewayClassStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a GatewayClass, written by its controller."""

    conditions: tuple[Condition, ...] = ()
    supported_features: tuple[SupportedFeature | str, ...] = ()
    """The features' names; Gateway API v1.1 and earlier list them as plain strings."""


class GatewayClass(ApiStruct, frozen=True, kw_only=True):
    """A class of Gateways that one controller serves."""

    metadata: ObjectMeta
    spec: GatewayClassSpec = GatewayClassSpec()
    status: GatewayClassStatus = GatewayClassStatus()

    @property
    def features(self) -> frozenset[str]:
        """The names of the features that the controller of this class implements."""
        return frozenset(
            feature if isinstance(feature, str) else feature.name
            for feature in self.status.supported_features
        )


class ParentRef(ApiStruct, frozen=True, kw_only=True):
    """The Gateway that a route is attached to, or one of its listeners."""

    _group: str | None = msgspec.field(default=None, name="group")
    _kind: str | None = msgspec.field(default=None, name="kind")
    _namespace: str | None = msgspec.field(default=None, name="namespace")
    _name: str = msgspec.field(default="", name="name")
    section_name: str | None = None
    port: int | None = None

    def target(self, namespace: str) -> Reference:
        """Return the Gateway (or other parent) to which a route in `namespace` is attached."""
        group = GATEWAY_GROUP if self._group is None else self._group
        kind = self._kind or "Gateway"
        return Reference(group, kind, self._namespace or namespace, self._name)

    def place(self, namespace: str) -> "Place":
        """Return the parent of a route in `namespace`, and the listener if one is named."""
        return self.target(namespace), self.section_name, self.port


class Backend(msgspec.Struct, frozen=True):
    """A backend of a route's rule, with its weight."""

    target: Reference
    port: int | None
    weight: int


class BackendRef(ApiStruct, frozen=True, kw_only=True):
    """A backend as written in a route's rule."""

    _group: str | None = msgspec.field(default=None, name="group")
    _kind: str | None = msgspec.field(default=None, name="kind")
    _namespace: str | None = msgspec.field(default=None, name="namespace")
    _name: str = msgspec.field(default="", name="name")
    port: int | None = None
    weight: int | None = None

    @classmethod
    def of_service(cls, namespace: str, name: str, *, port: int, weight: int) -> "BackendRef":
        """Return a backend: a port of a Service, with the weight of its traffic."""
        return cls(_namespace=namespace, _name=name, port=port, weight=weight)

    def resolved(self, namespace: str) -> Backend:
        """Return the backend for a route in `namespace`, with defaults for absent fields."""
        kind, group = self._kind or "Service", self._group or ""
        target = Reference(group, kind, self._namespace or namespace, self._name)
        return Backend(target, self.port, 1 if self.weight is None else self.weight)


Place = tuple[Reference, str | None, int | None]
"""A parent of a route, and the name and port of one of the parent's listeners, if given."""


class RouteParentStatus(ApiStruct, frozen=True, kw_only=True):
    """The report of one controller about a route at one of its parents."""

    parent_ref: ParentRef = ParentRef()
    controller_name: str = ""
    conditions: tuple[Condition, ...] = ()


class RouteStatus(ApiStruct, frozen=True, kw_only=True):
    """The reports of all controllers about a route."""

    parents: tuple[RouteParentStatus, ...] = ()


class RouteRule(ApiStruct, frozen=True, kw_only=True):
    """A rule of a route: matches, filters and backends."""

    matches: tuple[Json, ...] = ()
    filters: tuple[Json, ...] = ()
    backend_refs: tuple[BackendRef, ...] = ()


class RouteSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a route."""

    parent_refs: tuple[ParentRef, ...] = ()
    rules: tuple[RouteRule, ...] = ()


class Route(ApiStruct, frozen=True, kw_only=True, dict=True):
    """A route of any kind. `spec_json` keeps the fields that users added."""

    metadata: ObjectMeta
    spec_json: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="spec")
    status: RouteStatus = RouteStatus()

    @cached_property
    def spec(self) -> RouteSpec:
        """The fields of the spec that raybus uses."""
        return msgspec.json.decode(self.spec_json, type=RouteSpec, strict=False)

    def backends(self, rule: RouteRule) -> tuple[Backend, ...]:
        return tuple(backend.resolved(self.metadata.namespace) for backend in rule.backend_refs)


class HttpRoute(Route, frozen=True, kw_only=True, dict=True):
    """An HTTPRoute."""


class GrpcRoute(Route, frozen=True, kw_only=True, dict=True):
    """A GRPCRoute."""


PERCENTAGE_MIRROR: Final = "HTTPRouteRequestPercentageMirror"
"""The Gateway API feature that mirrors only a percentage of the requests."""


COPIES_ALL: Final = frozenset({"projectcontour.io/gateway-controller"})
"""Controllers that list no features and ignore the percentage of a mirror: they copy all requests.

`make e2e-gateways` measures this."""


def mirror_problem(gateway_class: GatewayClass | None, route: Route | None) -> str | None:
    """Return why Gateways of this class cannot mirror a percentage of the requests.

    None if the controller lists the feature `PERCENTAGE_MIRROR`. Also None if the controller lists
    no features and is not in `COPIES_ALL`; it may still mirror all requests or answer 500. `route`
    is a route on a Gateway of the class; its status names the controller.
    """
    features = frozenset[str]() if gateway_class is None else gateway_class.features
    if gateway_class is not None and features:
        name = gateway_class.metadata.name
        text = f"the controller of GatewayClass {name} does not support {PERCENTAGE_MIRROR}"
        return None if PERCENTAGE_MIRROR in features else text
    reports = () if route is None else route.status.parents
    controllers = sorted({report.controller_name for report in reports} & COPIES_ALL)
    if controllers:
        return f"controller {controllers[0]} ignores the percentage and would copy all of them"
    return None


def gateway_problem(gateway: Gateway | None) -> RoutingProblem | None:
    """Return why a Gateway does not accept requests; None if it does."""
    if gateway is None:
        return Problem(RoutingCode.MISSING, "does not exist")
    return _problem(gateway.status.conditions, "Accepted", "Programmed", generation=0)


def route_problem(route: Route, *, is_settled: bool) -> RoutingProblem | None:
    """Return why a Gateway does not follow the current state of a route; None if all parents do.

    A parent follows the route if a controller reports so; `_decisive` selects the reports that
    count. `is_settled` says whether raybus changed the route so long ago that a report without a
    generation counts too.
    """
    meta, wanted = route.metadata, route.spec.parent_refs
    if not wanted:
        return Problem(RoutingCode.NO_PARENT, "names no Gateway in spec.parentRefs")
    for parent in wanted:
        place = parent.place(meta.namespace)
        reports = [
            report
            for report in route.status.parents
            if report.parent_ref.place(meta.namespace) == place
        ]
        if not reports:
            text = f"is not accepted yet: no controller reports on {_shown(parent, meta)}"
            return Problem(RoutingCode.NOT_ACCEPTED, text, transient=True)
        problems = [
            _report_problem(report, meta, is_settled=is_settled)
            for report in _decisive(reports, meta)
        ]
        if None not in problems:
            return problems[0]
    return None


def lagging_parents(route: Route, *, is_settled: bool) -> tuple[Reference, ...]:
    """Return the parents that may still follow an earlier state of a route.

    These parents have accepted an earlier generation of the route, but not yet the current one. For
    `is_settled` see `route_problem`.
    """
    meta = route.metadata
    accepting = [
        report
        for report in route.status.parents
        if any(
            (condition.type, condition.status) == ("Accepted", "True")
            for condition in report.conditions
        )
    ]
    behind: dict[Place, bool] = {}
    for report in accepting:
        stated = _stated_generation(report)
        is_current = stated >= meta.generation if stated else is_settled
        place = report.parent_ref.place(meta.namespace)
        behind[place] = behind.get(place, True) and not is_current
    return tuple(place[0] for place, is_behind in behind.items() if is_behind)


def _shown(parent: ParentRef, meta: ObjectMeta) -> str:
    target, section, _ = parent.place(meta.namespace)
    return f"{target}" if section is None else f"{target}, listener {section}"


def _stated_generation(report: RouteParentStatus) -> int:
    """Return the generation that a report is about; 0 if it states none."""
    return max((condition.observed_generation for condition in report.conditions), default=0)


def _decisive(reports: list[RouteParentStatus], meta: ObjectMeta) -> list[RouteParentStatus]:
    """Return the reports on one parent that decide whether the route is accepted.

    A report about an earlier generation counts only if there are no others, because its controller
    may not manage the Gateway any more. Some controllers write reports without a generation. Either
    only these reports count or only those about the current generation: the kind to which the
    report with the latest transition belongs.
    """
    current = [
        report
        for report in reports
        if (stated := _stated_generation(report)) == 0 or stated >= meta.generation
    ]
    if not current:
        return reports
    newest = max(current, key=lambda report: (_changed_at(report), _stated_generation(report)))
    has_generation = _stated_generation(newest) > 0
    return [report for report in current if (_stated_generation(report) > 0) is has_generation]


def _changed_at(report: RouteParentStatus) -> datetime:
    return max(
        (condition.last_transition_time for condition in report.conditions), default=EARLIEST
    )


def _report_problem(
    report: RouteParentStatus, meta: ObjectMeta, *, is_settled: bool
) -> RoutingProblem | None:
    """Return the problem that one controller reports; the text names controller and parent.

    It names the generation only if the controller is behind. Otherwise the text would change with
    each generation. For `is_settled` see `route_problem`.
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
    """Return a problem for the first wanted condition that is not met; None if all are met.

    A condition is met if it is True and was observed at `generation`, or, with `is_settled`, if it
    is True and has no observed generation.
    """
    by_type = {condition.type: condition for condition in conditions}
    for kind in wanted:
        code, condition = RoutingCode(f"Not{kind}"), by_type.get(kind)
        if condition is None:
            return Problem(code, f"is not {kind} yet", transient=True)
        if condition.status != "True":
            why = ": ".join(part for part in (condition.reason, condition.message) if part)
            return Problem(code, f"is not {kind} ({why})" if why else f"is not {kind}")
        stated = condition.observed_generation
        if stated < generation and not (stated == 0 and is_settled):
            return Problem(code, f"is not {kind} yet as it is now", transient=True)
    return None
