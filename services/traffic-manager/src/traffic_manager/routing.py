"""What makes the Gateway and the routes of a service be what they should: the writes, and what is wrong with them.

One HTTPRoute carries the weights and their record: ours, or the user's own (`common.upgrade.weighted_route`). Others follow it with the
same weights: the GRPCRoute where the application takes gRPC calls, and routes that carried the traffic before the user named
another one, until that one is taken. Spec rayservice §9; acceptance 39, 51, 55, 87, 88.

`spec.rules` of an HTTPRoute is one value for server-side apply. A tool that owns it and applies its own manifest empties our backends, and
requests fail until they are there again. They are written again, with an Event and less often each time: two tools that each want
their own must not write as fast as they can.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET

from common import names
from common.api.gateway import BackendRef, Gateway, HttpRoute, Route, RoutingCode, RoutingProblem, route_problem
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.errors import Problem
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, Resource
from common.ray import owner, ports
from common.runtime.actions import MAIN, SILENT, Action, Create, Delete, EmitEvent, Patch, Report, normal, warning
from common.upgrade import traffic_record as records
from common.upgrade import weighted_route
from common.upgrade.traffic_record import Overwritten, Record, Share
from traffic_manager import actions, options
from traffic_manager.events import EventReason
from traffic_manager.migration.progression import Judgement
from traffic_manager.observed import ClusterView, Observed
from traffic_manager.resources import gateway_api
from traffic_manager.status import gates, traffic_record

CALM: Final = timedelta(minutes=1)
"""After so long the next replacement of our backends is the first again."""
AT_ONCE: Final = 3
"""Replacements in a row that are answered at once."""
LONGEST: Final = timedelta(seconds=4)
Part = tuple[ClusterView, Share]
"""A cluster and what it gets."""


def gateway_writes(observed: Observed) -> tuple[Action, ...]:
    """Return what the Gateway lacks; where the user brought a route, its Gateway is theirs."""
    name, meta, have = options.gateway_class(observed), observed.service.metadata, observed.gateway
    if not name or weighted_route.is_users(observed.service) or GATEWAY.kind in observed.unknown_kinds:
        return ()
    # before the route of gRPC calls exists, its kind is unknown, and a listener for it is refused
    listeners = () if have is None else have.spec.listeners
    is_known = observed.grpc_route is not None or any(each.name == gateway_api.GRPC_LISTENER for each in listeners)
    port = _grpc_port(observed) if is_known and _wants_grpc(observed) else None
    if have is None:
        return (_created(GATEWAY, gateway_api.build_gateway(meta, name, port), chain=actions.GATEWAY),)
    patch = gateway_api.corrected_gateway(have, name, port)
    if patch is None or not is_ours(observed, have):
        return ()
    return (_patched(GATEWAY, have, patch, chain=actions.GATEWAY),)


def writes(
    observed: Observed,
    parts: Sequence[Part],
    *,
    now: datetime,
    judged: Judgement | None = None,
    shows_gates: bool = False,
) -> tuple[Action, ...]:
    """Return what makes all routes give these shares, nothing when they do.

    The replacement of our backends that is repaired now is recorded, and the results of gates; `shows_gates` is whether those that users
    are to see are worth a write of their own.
    """
    clusters = {view.name: share for view, share in parts}
    record = traffic_record.of(observed, clusters, now=now, judged=judged)
    if (by := observed.overwriter) is not None:
        past = record.overwritten
        streak = past.streak + 1 if past is not UNSET and now - past.at < CALM else 1
        record = msgspec.structs.replace(record, overwritten=Overwritten(at=now, by=by, streak=streak))
    backends = [gateway_api.backend(view.cluster, share.weight) for view, share in parts]
    is_current = partial(traffic_record.is_current, record, shows_gates=shows_gates, now=now)
    have, service, carried = observed.route, observed.service, None
    if have is not None and have.metadata.deletion_timestamp is None and _is_usable(observed):
        carried = _correction(observed, have, backends, record, is_current=is_current)
    elif have is None and not weighted_route.is_users(service) and HTTP_ROUTE.kind not in observed.unknown_kinds:
        carried = _created(HTTP_ROUTE, gateway_api.build(HTTP_ROUTE, service.metadata, backends, record))
    reports = () if carried is None else (*_warnings(observed), *verdicts(observed, judged))
    former = _former_route_writes(observed, backends, record, is_current=is_current)
    found = (carried, *reports, *former, _grpc(observed, parts))
    return tuple(each for each in found if each is not None)


def verdicts(observed: Observed, judged: Judgement | None) -> Iterator[EmitEvent]:
    """Yield the Events of gates that come with a write of the record: those that passed or failed since the last one."""
    if judged is None:
        return
    held = observed.upgrade
    if judged.failed is not None and not (held and held.failed):
        yield EmitEvent(event=warning(EventReason.GATE_FAILED, "Upgrade", f"The gate {judged.failed}"))
    passed = gates.passed(records.gates_of(held), judged.results)
    if passed:
        share = observed.record.clusters.get(observed.pending_name)
        note = f"{'Gate' if len(passed) == 1 else 'Gates'} passed at {0 if share is None else share.weight} percent: {'; '.join(passed)}"
        yield EmitEvent(event=normal(EventReason.GATE_PASSED, "Upgrade", note))


def is_left_behind(observed: Observed) -> bool:
    """Return whether a route is there from the time when the traffic moved in steps."""
    service, route = observed.service, observed.route
    if route is None or weighted_route.is_users(service):
        return route is not None and gateway_api.is_held(route)
    return owner.owns(service.metadata, route.metadata)


def record_route(observed: Observed) -> HttpRoute | None:
    """Return the route that holds the record: the weighted route, or while that is not usable, the newest former one."""
    if _is_usable(observed):
        return observed.route
    former = [
        each
        for each in observed.former_routes
        if each.metadata.deletion_timestamp is None and weighted_route.refusal(observed.service, each) is None
    ]
    return max(former, key=lambda each: records.of_route(each) == observed.record, default=None)


def recorded(route: HttpRoute, record: Record) -> Patch:
    """Return the write of a record only."""
    return _patched(HTTP_ROUTE, route, {"metadata": gateway_api.patch_meta(route, record)})


def removal(observed: Observed) -> tuple[Action, ...]:
    """Return what takes our Gateway and routes away, and everything of ours out of the user's."""
    held = ((GATEWAY, observed.gateway), (HTTP_ROUTE, observed.our_route), (GRPC_ROUTE, observed.grpc_route))
    ours = ((resource, have.metadata) for resource, have in held if have is not None and is_ours(observed, have))
    gone = (deleted(resource, meta, when=" during suspend") for resource, meta in ours)
    return (*gone, *released(observed))


def released(observed: Observed) -> tuple[Action, ...]:
    """Return what takes everything of ours out of the routes that users brought."""
    return tuple(_release(observed, each) for each in observed.users_routes if gateway_api.is_held(each))


def problem(observed: Observed) -> RoutingProblem | None:
    """Return why the traffic does not follow the routes as they are now."""
    trouble = weighted_route.route_trouble(observed.service, observed.route, observed.clusters)
    if trouble is not None or not _wants_grpc(observed):
        return trouble
    meta, route = observed.service.metadata, observed.grpc_route
    where = f"GRPCRoute {meta.namespace}/{names.grpc_route(meta.name)}"
    if route is None:
        return Problem(RoutingCode.MISSING, f"{where} does not exist")
    why = weighted_route.not_ours(meta, route.metadata) or route_problem(route)
    return None if why is None else why.at(where)


def lag(observed: Observed) -> RoutingProblem | None:
    """Return why a Gateway may still follow an earlier generation of the route; no route sends nothing."""
    route = record_route(observed)
    if route is None:
        return None
    return problem(observed) if route is observed.route else route_problem(route)


def overwrite_due(observed: Observed, *, now: datetime) -> datetime | None:
    """Return when a route may be written again; None when it was not replaced, or when that is now."""
    held = observed.record.overwritten
    if observed.overwriter is None or held is UNSET or held.streak < AT_ONCE or now < held.at:
        return None
    moment = held.at + min(LONGEST, timedelta(seconds=0.5) * 2 ** min(held.streak - AT_ONCE, 8))
    return moment if now < moment else None


def _correction(
    observed: Observed,
    have: HttpRoute,
    backends: Sequence[BackendRef],
    record: Record,
    *,
    is_current: Callable[[Record], bool],
) -> Patch | None:
    """Return the write that gives one route these shares and their record; None when it has them, or a record that will do."""
    meta, own, patch = observed.service.metadata, observed.own_backends, None
    if have.metadata.name == names.http_route(meta.name):
        patch = gateway_api.corrected(HTTP_ROUTE, have, meta, backends, record)
    elif weighted_route.crowded(have, own, len(backends)) is None:
        patch = gateway_api.corrected_users(have, meta, own, backends, record)
    if patch is not None:
        return _patched(HTTP_ROUTE, have, patch)
    return None if is_current(records.of_route(have)) else recorded(have, record)


def _is_usable(observed: Observed) -> bool:
    """Return whether the route that is to carry the traffic is there and may be written."""
    service, route = observed.service, observed.route
    if route is None or weighted_route.refusal(service, route) is not None:
        return False
    return not weighted_route.is_users(service) or bool(weighted_route.rules_of(route, observed.own_backends))


def is_ours(observed: Observed, have: Gateway | Route) -> bool:
    """Return whether we made an object, and it is not being deleted; nothing else is changed or deleted under the name of ours."""
    return have.metadata.deletion_timestamp is None and owner.owns(observed.service.metadata, have.metadata)


def _former_route_writes(
    observed: Observed, backends: Sequence[BackendRef], record: Record, *, is_current: Callable[[Record], bool]
) -> Iterator[Patch | None]:
    """Yield the writes of routes that carried the traffic before.

    Requests may come through them until the present one is taken. Then a user's route is given back, and ours stays until its
    user deletes it: only they know when it is unused. A name that cannot be one takes no route away. All hold the same
    record, so that whichever carries the traffic next begins with the weights that hold.
    """
    is_misnamed = weighted_route.odd_name(observed.service) is not None
    is_taken = problem(observed) is None and observed.gateway_trouble is None and not is_misnamed
    for have in observed.former_routes:
        if have.metadata.deletion_timestamp is not None:
            continue
        if is_taken and have is not observed.our_route:
            yield _release(observed, have)
        elif weighted_route.refusal(observed.service, have) is None:
            yield _correction(observed, have, backends, record, is_current=is_current)


def _grpc(observed: Observed, parts: Sequence[Part]) -> Action | None:
    """Return the write of the GRPCRoute; without a cluster that takes gRPC calls there is none."""
    meta, have, is_wanted = observed.service.metadata, observed.grpc_route, _wants_grpc(observed)
    offered = [(view.cluster, share.weight, ports.of_grpc(view.cluster.raw_spec)) for view, share in parts]
    backends = [gateway_api.backend(cluster, weight, port) for cluster, weight, port in offered if port is not None]
    if have is None:
        return _created(GRPC_ROUTE, gateway_api.build(GRPC_ROUTE, meta, backends)) if is_wanted else None
    if not is_ours(observed, have):
        return None
    if not is_wanted:
        return None if backends else deleted(GRPC_ROUTE, have.metadata)
    patch = gateway_api.corrected(GRPC_ROUTE, have, meta, backends)
    return None if patch is None else _patched(GRPC_ROUTE, have, patch)


def _wants_grpc(observed: Observed) -> bool:
    """Return whether gRPC calls are routed: an application takes them, and the API server knows their route."""
    is_ours = not weighted_route.is_users(observed.service)
    return is_ours and _grpc_port(observed) is not None and GRPC_ROUTE.kind not in observed.unknown_kinds


def _grpc_port(observed: Observed) -> int | None:
    """Return the port through which the active cluster takes gRPC calls, or the pending one when only that does."""
    found = (ports.of_grpc(each.cluster.raw_spec) for each in observed.views)
    return next((port for port in found if port is not None), None)


def _warnings(observed: Observed) -> Iterator[EmitEvent]:
    """Yield the events that come with a write of the route; their texts stay the same, so that repeats are counted."""
    service, route = observed.service, observed.route
    if weighted_route.is_users(service) and _grpc_port(observed) is not None:
        text = (
            f"gRPC calls are not routed: HTTPRoute {weighted_route.name_of(service)} is yours, and so is its Gateway, "
            "which raybus gives no listener. To have them routed, remove the annotation"
        )
        yield EmitEvent(event=warning(EventReason.GRPC_ROUTE_UNSUPPORTED, "Reconcile", text))
    if observed.overwriter is not None and route is not None:
        text = (
            f"HTTPRoute {route.metadata.namespaced_name}: field manager {observed.overwriter} replaced spec.rules, and "
            "requests failed until raybus had written its backends again; let that tool leave spec.rules alone "
            "(docs/how-to/gateway.md, A route in Git)"
        )
        yield EmitEvent(event=warning(EventReason.ROUTE_OVERWRITTEN, "Reconcile", text))


def _release(observed: Observed, have: HttpRoute) -> Patch:
    return _patched(HTTP_ROUTE, have, gateway_api.release(have, observed.service.metadata, observed.own_backends))


def _created(resource: Resource, body: Json, *, chain: str = MAIN) -> Create:
    """Return the creation of a Gateway or a route, with its Events; KubeRay has the article in one of them."""
    what = f"{resource.kind} for RayService {body['metadata']['namespace']}/{body['metadata']['name']}"
    failed = f"Failed to create {'' if resource is GATEWAY else 'the '}{what}: "
    report = Report("Create", resource.kind, what, failed=failed)
    return Create(resource=resource, body=body, events=report.of(), chain=chain)


def _patched(resource: Resource, have: Gateway | Route, patch: Json, *, chain: str = MAIN) -> Patch:
    """Return the write of a patch; one of the record alone has no Events."""
    report = Report("Update", resource.kind, f"the {resource.kind} {have.metadata.namespaced_name}")
    reported = report.of() if "spec" in patch else SILENT
    return Patch(resource=resource, name=have.metadata.name, patch=patch, events=reported, chain=chain)


def deleted(resource: Resource, meta: ObjectMeta, *, when: str = "") -> Delete:
    """Return the deletion of a Gateway or a route, with its Events."""
    report = Report("Delete", resource.kind, f"the {resource.kind} {meta.namespaced_name}{when}")
    return Delete(resource=resource, name=meta.name, uid=meta.uid, events=report.of())
