"""What makes the Gateway and the routes of a service be what they should: the writes, and what is wrong with them.

One HTTPRoute carries the weights and their record: ours, or the user's own (`common.upgrade.weighted_route`). Others follow it with the
same weights: the GRPCRoute where the application takes gRPC calls, and routes that carried the traffic before the user named
another one, until that one is taken. Spec rayservice §9; acceptance 39, 51, 55, 87, 88.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from common import names
from common.api.event import warning
from common.api.gateway import Gateway, HttpRoute, Route, RoutingCode, RoutingProblem, route_problem
from common.api.opaque import Json
from common.errors import Invariant
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, Resource
from common.problem import Problem
from common.ray import owner, service_ports
from common.runtime.actions import Action, Create, Delete, EmitEvent, Patch
from common.upgrade import traffic_record as records
from common.upgrade import weighted_route
from common.upgrade.traffic_record import Record, Share
from traffic_manager import actions as chains
from traffic_manager import events, options, overwriting
from traffic_manager.observed import ClusterView, Observed
from traffic_manager.reasons import EventReason
from traffic_manager.resources import gateway, grpc_route, http_route, users_route
from traffic_manager.resources.backend import Backend
from traffic_manager.status import traffic_record


def gateway_writes(observed: Observed) -> tuple[Action, ...]:
    """Return what the Gateway lacks; where the user brought a route, its Gateway is theirs."""
    name = options.gateway_class(observed)
    if not name or weighted_route.is_users(observed.service) or GATEWAY.kind in observed.unknown_kinds:
        return ()
    meta = observed.service.metadata
    have = observed.gateway
    where = f"{meta.namespace}/{names.gateway(meta.name)}"
    port = _grpc_listener(observed)
    if have is None:
        body = gateway.build(meta, gateway_class=name, grpc_port=port)
        return (Create(resource=GATEWAY, body=body, events=events.created(GATEWAY.kind, where), chain=chains.GATEWAY),)
    may_write = have.metadata.deletion_timestamp is None and _is_ours(observed, have)
    if not may_write or gateway.drift(have, gateway_class=name, grpc_port=port) is None:
        return ()
    patch = gateway.patch(have, gateway_class=name, grpc_port=port)
    report = events.updated(GATEWAY.kind, where)
    return (Patch(resource=GATEWAY, name=have.metadata.name, patch=patch, events=report, chain=chains.GATEWAY),)


def writes(
    observed: Observed,
    shares: Mapping[str, Share],
    views: Sequence[ClusterView],
    *,
    now: datetime,
) -> tuple[Action, ...]:
    """Return what makes all routes give these shares, nothing when they do."""
    pair = (views[0].name, views[1].name) if len(views) > 1 else None
    record = overwriting.noted(observed, traffic_record.of(observed.record, dict(shares), now=now, pair=pair), now=now)
    backends = [
        Backend(cluster=view.name, port=http_route.serve_port(view.cluster.raw_spec), weight=shares[view.name].weight)
        for view in views
    ]
    carried = _weighted_route(observed, backends, record)
    return (
        *carried,
        *(_unrouted_grpc(observed) if carried else ()),
        *((EmitEvent(event=event),) if carried and (event := overwriting.event(observed)) is not None else ()),
        *_former_route_writes(observed, backends, record),
        *_grpc(observed, shares, views),
    )


def is_left_behind(observed: Observed) -> bool:
    """Return whether a route is there from the time when the traffic moved in steps."""
    route = observed.route
    if route is None:
        return False
    return users_route.is_held(route) if weighted_route.is_users(observed.service) else _is_ours(observed, route)


def record_route(observed: Observed) -> HttpRoute | None:
    """Return the route that holds the record: the weighted route, or while that is not usable, the newest former one."""
    if _is_usable(observed):
        return observed.route
    former = [each for each in observed.former_routes if _may_write(observed, each)]
    record = observed.record
    return next((each for each in former if records.of_route(each) == record), next(iter(former), None))


def recorded(observed: Observed, record: Record) -> Patch:
    """Return the write of a record only."""
    route = record_route(observed)
    if route is None:
        raise Invariant("a record needs a route to stand on")
    return Patch(resource=HTTP_ROUTE, name=route.metadata.name, patch=http_route.record_patch(route, record))


def removal(observed: Observed) -> tuple[Action, ...]:
    """Return what takes our Gateway and routes away, and everything of ours out of the user's."""
    pairs = ((GATEWAY, observed.gateway), (HTTP_ROUTE, observed.our_route), (GRPC_ROUTE, observed.grpc_route))
    gone: list[Action] = []
    for resource, have in pairs:
        if have is not None and have.metadata.deletion_timestamp is None and _is_ours(observed, have):
            meta = have.metadata
            report = events.deleted(resource.kind, f"{meta.namespace}/{meta.name}")
            gone.append(Delete(resource=resource, name=meta.name, uid=meta.uid, events=report))
    return (*gone, *released(observed))


def released(observed: Observed) -> tuple[Action, ...]:
    """Return what takes everything of ours out of the routes that users brought."""
    return tuple(_release(observed, each) for each in observed.users_routes if users_route.is_held(each))


def gateway_problem(observed: Observed) -> RoutingProblem | None:
    """Return why a Gateway takes no requests."""
    return weighted_route.gateway_trouble(observed.service, observed.route, observed.gateways)


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


def _weighted_route(observed: Observed, backends: Sequence[Backend], record: Record) -> tuple[Action, ...]:
    """Return the write of the route that carries weights and record."""
    meta, have = observed.service.metadata, observed.route
    where = f"{meta.namespace}/{weighted_route.name_of(observed.service)}"
    is_users = weighted_route.is_users(observed.service)
    if have is None:
        if is_users or HTTP_ROUTE.kind in observed.unknown_kinds:
            return ()
        body = http_route.build(meta, backends, record)
        return (Create(resource=HTTP_ROUTE, body=body, events=events.created(HTTP_ROUTE.kind, where)),)
    if have.metadata.deletion_timestamp is not None:
        return ()
    if not _is_usable(observed):
        return ()
    return _followed(observed, have, backends, record)


def _followed(observed: Observed, have: HttpRoute, backends: Sequence[Backend], record: Record) -> tuple[Action, ...]:
    """Return the write that gives one route these shares and their record; nothing when it has them."""
    meta, own = observed.service.metadata, observed.own_backends
    if have.metadata.name == names.http_route(meta.name):
        if http_route.drift(have, meta, backends) is not None:
            return (_changed(HTTP_ROUTE, have, http_route.patch(have, meta, backends, record)),)
    elif weighted_route.crowded(have, own, len(backends)) is None and users_route.drift(have, meta, own, backends):
        return (_changed(HTTP_ROUTE, have, users_route.patch(have, meta, own, backends, record)),)
    if record.clusters == records.of_route(have).clusters:
        return ()
    return (Patch(resource=HTTP_ROUTE, name=have.metadata.name, patch=http_route.record_patch(have, record)),)


def _is_usable(observed: Observed) -> bool:
    """Return whether the route that is to carry the traffic is there and may be written."""
    service, route = observed.service, observed.route
    if route is None or weighted_route.refusal(service, route) is not None:
        return False
    return not weighted_route.is_users(service) or bool(weighted_route.rules_of(route, observed.own_backends))


def _may_write(observed: Observed, have: HttpRoute) -> bool:
    """Return whether a route that carried the traffic before may still be written."""
    return have.metadata.deletion_timestamp is None and weighted_route.refusal(observed.service, have) is None


def _is_ours(observed: Observed, have: Gateway | Route) -> bool:
    """Return whether an object is one that we made; nothing else is changed or deleted under the name of ours."""
    return owner.owns(observed.service.metadata, have.metadata)


def _former_route_writes(observed: Observed, backends: Sequence[Backend], record: Record) -> tuple[Action, ...]:
    """Return the writes of routes that carried the traffic before.

    Requests may come through them until the present one is taken. Then a user's route is given back, and ours stays until its
    user deletes it: only they know when it is unused. A name that cannot be one takes no route away. All hold the same
    record, so that whichever carries the traffic next begins with the weights that hold.
    """
    is_misnamed = weighted_route.odd_name(observed.service) is not None
    is_taken = problem(observed) is None and gateway_problem(observed) is None and not is_misnamed
    actions: list[Action] = []
    for have in observed.former_routes:
        if have.metadata.deletion_timestamp is not None:
            continue
        if is_taken and have is not observed.our_route:
            actions.append(_release(observed, have))
        elif _may_write(observed, have):
            actions.extend(_followed(observed, have, backends, record))
    return tuple(actions)


def _grpc(observed: Observed, shares: Mapping[str, Share], views: Sequence[ClusterView]) -> tuple[Action, ...]:
    """Return the write of the GRPCRoute; without a cluster that takes gRPC calls there is none."""
    meta, have = observed.service.metadata, observed.grpc_route
    where = f"{meta.namespace}/{names.grpc_route(meta.name)}"
    ports = [(view, service_ports.of_grpc(view.cluster.raw_spec)) for view in views]
    backends = [
        Backend(cluster=view.name, port=port, weight=shares[view.name].weight)
        for view, port in ports
        if port is not None
    ]
    if have is not None and not _is_ours(observed, have):
        return ()
    if not _wants_grpc(observed):
        if have is None or have.metadata.deletion_timestamp is not None or backends:
            return ()
        report = events.deleted(GRPC_ROUTE.kind, where, suspending=False)
        return (Delete(resource=GRPC_ROUTE, name=have.metadata.name, uid=have.metadata.uid, events=report),)
    if have is None:
        body = grpc_route.build(meta, backends)
        return (Create(resource=GRPC_ROUTE, body=body, events=events.created(GRPC_ROUTE.kind, where)),)
    if have.metadata.deletion_timestamp is not None or grpc_route.drift(have, meta, backends) is None:
        return ()
    return (_changed(GRPC_ROUTE, have, grpc_route.patch(have, meta, backends)),)


def _wants_grpc(observed: Observed) -> bool:
    """Return whether gRPC calls are routed: an application takes them, and the API server knows their route."""
    is_ours = not weighted_route.is_users(observed.service)
    return is_ours and _grpc_port(observed) is not None and GRPC_ROUTE.kind not in observed.unknown_kinds


def _grpc_listener(observed: Observed) -> int | None:
    """Return the port of the listener of gRPC calls; before the route of such calls exists, its kind is unknown."""
    is_known = observed.grpc_route is not None or gateway.takes_grpc(observed.gateway)
    return _grpc_port(observed) if is_known and _wants_grpc(observed) else None


def _grpc_port(observed: Observed) -> int | None:
    """Return the port through which the active cluster takes gRPC calls, or the pending one when only that does."""
    views = (each for each in (observed.active, observed.pending) if each is not None)
    return next((port for each in views if (port := service_ports.of_grpc(each.cluster.raw_spec)) is not None), None)


def _unrouted_grpc(observed: Observed) -> tuple[EmitEvent, ...]:
    """Return the event of an application with gRPC calls behind a user's route."""
    if not weighted_route.is_users(observed.service) or _grpc_port(observed) is None:
        return ()
    text = (
        f"gRPC calls are not routed: HTTPRoute {weighted_route.name_of(observed.service)} is yours, and so is its Gateway, "
        "which raybus gives no listener. To have them routed, remove the annotation"
    )
    return (EmitEvent(event=warning(EventReason.GRPC_ROUTE_UNSUPPORTED, "Reconcile", text)),)


def _release(observed: Observed, have: HttpRoute) -> Patch:
    return _changed(HTTP_ROUTE, have, users_route.release(have, observed.service.metadata, observed.own_backends))


def _changed(resource: Resource, have: Route, patch: Json) -> Patch:
    meta = have.metadata
    report = events.updated(resource.kind, f"{meta.namespace}/{meta.name}")
    return Patch(resource=resource, name=meta.name, patch=patch, events=report)
