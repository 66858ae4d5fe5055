"""Plans the Gateway and the routes of a RayService, and finds why they carry no traffic.

One HTTPRoute carries the traffic weights and the traffic record: raybus's own route or a route of
the user (`common.upgrade.weighted_route`). Two kinds of routes get the same weights: the GRPCRoute,
if an application takes gRPC calls, and the routes that carried the traffic before the user named
another route. Such a former route is kept until the Gateway accepts the new route. Spec rayservice
§9; acceptance 39, 51, 55, 87, 88.

Server-side apply treats `spec.rules` of an HTTPRoute as one value. A tool that owns the field and
applies its own manifest therefore removes raybus's backends, and requests fail until raybus writes
the backends again. Each repair emits an Event. raybus waits longer before each repeated repair, so
that two tools that disagree do not write as fast as they can.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from common import names
from common.api.gateway import (
    BackendRef,
    Gateway,
    HttpRoute,
    Route,
    RoutingCode,
    RoutingProblem,
    route_problem,
)
from common.api.opaque import Json
from common.errors import Problem
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE
from common.ray import owner, ports
from common.runtime.actions import Action, Create, Delete, EmitEvent, Patch
from common.upgrade import traffic_record as records
from common.upgrade import weighted_route
from common.upgrade.traffic_record import ClusterTraffic, Overwritten, Record
from traffic_manager import actions, events, options
from traffic_manager.migration.progression import Judgement
from traffic_manager.observed import Observed, ServedCluster
from traffic_manager.resources import gateway_api
from traffic_manager.status import traffic_record

STREAK_RESET_TIME: Final = timedelta(minutes=1)
"""Time without a replacement of the route's rules after which the count of repairs starts over."""
MAX_IMMEDIATE_REWRITES: Final = 3
"""Number of consecutive replacements of the route's rules that are repaired without delay."""
MAX_REWRITE_DELAY: Final = timedelta(seconds=4)
"""Upper bound of the delay before the rules of a route are repaired."""
Part = tuple[ServedCluster, ClusterTraffic]
"""A cluster and its entry in the traffic record; its traffic weight is in the entry."""


def plan_gateway(observed: Observed) -> Iterator[Action]:
    """Yield the action that creates or corrects the Gateway; none if the Gateway is right.

    If the user brought the route, the Gateway is the user's too, and nothing is written.
    """
    name, meta, have = options.gateway_class(observed), observed.service.metadata, observed.gateway
    if (
        not name
        or weighted_route.is_users(observed.service)
        or GATEWAY.kind in observed.unknown_kinds
    ):
        return
    # a Gateway rejects a listener for GRPCRoute while the API server does not know that kind
    listeners = () if have is None else have.spec.listeners
    is_known = observed.grpc_route is not None or any(
        listener.name == gateway_api.GRPC_LISTENER for listener in listeners
    )
    port = observed.grpc_port if is_known and _wants_grpc(observed) else None
    if have is None:
        body = gateway_api.build_gateway(meta, name, port)
        report = events.CREATED[GATEWAY].format(f"{meta.namespace}/{names.gateway(meta.name)}")
        yield Create(resource=GATEWAY, body=body, events=report, chain=actions.GATEWAY)
    elif (
        is_ours(observed, have)
        and (patch := gateway_api.corrected_gateway(have, name, port)) is not None
    ):
        report = events.UPDATED[GATEWAY].format(have.metadata.namespaced_name)
        yield Patch(
            resource=GATEWAY,
            name=have.metadata.name,
            patch=patch,
            events=report,
            chain=actions.GATEWAY,
        )


def plan_routes(
    observed: Observed,
    parts: Sequence[Part],
    *,
    now: datetime,
    judged: Judgement | None = None,
    shows_gates: bool = False,
) -> tuple[Action, ...]:
    """Return the actions that give all routes the weights of `parts`; empty if all have them.

    The same actions update the traffic record, including the results of the gates (`judged`). If
    another tool replaced the backends, the record also counts this repair. With `shows_gates`,
    changed gate results alone justify a write, so that users see them.
    """
    clusters = {view.name: share for view, share in parts}
    record = traffic_record.build_record(observed, clusters, now=now, judged=judged)
    if (by := observed.overwriter) is not None:
        past = record.overwritten
        streak = past.streak + 1 if past is not UNSET and now - past.at < STREAK_RESET_TIME else 1
        record = msgspec.structs.replace(
            record, overwritten=Overwritten(at=now, by=by, streak=streak)
        )
    backends = [gateway_api.backend(view.cluster, share.weight) for view, share in parts]
    route, service, meta, actions = (
        observed.route,
        observed.service,
        observed.service.metadata,
        list[Action](),
    )
    reports = (EmitEvent(event=event) for event in events.of_route(observed, judged))
    if (
        route is None
        and not weighted_route.is_users(service)
        and HTTP_ROUTE.kind not in observed.unknown_kinds
    ):
        body = gateway_api.build(HTTP_ROUTE, meta, backends, record)
        report = events.CREATED[HTTP_ROUTE].format(
            f"{meta.namespace}/{names.http_route(meta.name)}"
        )
        actions += [Create(resource=HTTP_ROUTE, body=body, events=report), *reports]
    for have in (route for route in observed.routes if route.metadata.deletion_timestamp is None):
        patch = _build_correction(
            observed, have, backends, record, shows_gates=shows_gates, now=now
        )
        if patch is not None:
            report = events.of_patch(have, patch)
            write = Patch(resource=HTTP_ROUTE, name=have.metadata.name, patch=patch, events=report)
            actions += [write, *reports] if have is route else [write]
    return (*actions, *_plan_grpc_route(observed, parts))


def is_left_behind(observed: Observed) -> bool:
    """Return whether a route still exists from a time when traffic moved in steps."""
    service, route = observed.service, observed.route
    if route is None or weighted_route.is_users(service):
        return route is not None and gateway_api.is_held(route)
    return owner.owns(service.metadata, route.metadata)


def record_route(observed: Observed) -> HttpRoute | None:
    """Return the route that has the traffic record; None if there is none.

    This is the weighted route or, while the weighted route cannot be used, the former route with
    the newest record.
    """
    if observed.route is not None and _is_usable(observed, observed.route):
        return observed.route
    kept = (route for route in observed.former_routes if route.metadata.deletion_timestamp is None)
    former = (route for route in kept if _is_usable(observed, route))
    return max(former, key=lambda route: records.of_route(route) == observed.record, default=None)


def plan_route_removal(observed: Observed) -> Iterator[Action]:
    """Yield the actions that delete the Gateway and the routes that raybus created.

    Users' routes stay, but raybus's part is removed from them.
    """
    removable = (
        (GATEWAY, observed.gateway),
        (HTTP_ROUTE, observed.our_route),
        (GRPC_ROUTE, observed.grpc_route),
    )
    for resource, have in removable:
        if have is not None and is_ours(observed, have):
            meta, report = (
                have.metadata,
                events.SUSPENDED[resource].format(have.metadata.namespaced_name),
            )
            yield Delete(resource=resource, name=meta.name, uid=meta.uid, events=report)
    yield from plan_route_release(observed)


def plan_route_release(observed: Observed) -> Iterator[Action]:
    """Yield the actions that remove raybus's backends, labels and record from users' routes."""
    for have in filter(gateway_api.is_held, observed.users_routes):
        patch = gateway_api.release(have, observed.service.metadata, observed.own_backends)
        yield Patch(
            resource=HTTP_ROUTE,
            name=have.metadata.name,
            patch=patch,
            events=events.of_patch(have, patch),
        )


def find_problem(observed: Observed) -> RoutingProblem | None:
    """Return why the traffic does not follow the current routes; None if it follows them."""
    trouble = weighted_route.route_trouble(
        observed.service, observed.route, observed.clusters, is_settled=observed.is_settled
    )
    if trouble is not None or not _wants_grpc(observed):
        return trouble
    meta, route = observed.service.metadata, observed.grpc_route
    where = f"GRPCRoute {meta.namespace}/{names.grpc_route(meta.name)}"
    if route is None:
        return Problem(RoutingCode.MISSING, f"{where} does not exist")
    why = weighted_route.not_ours(meta, route.metadata) or route_problem(
        route, is_settled=observed.is_settled
    )
    return None if why is None else why.at(where)


def find_lag(observed: Observed) -> RoutingProblem | None:
    """Return why a Gateway may still apply an earlier generation of the route; None if none can.

    Without a route there is no lag, because no Gateway sends anything.
    """
    route = record_route(observed)
    if route is None:
        return None
    if route is observed.route:
        return find_problem(observed)
    return route_problem(route, is_settled=observed.is_settled)


def rewrite_after(observed: Observed, *, now: datetime) -> datetime | None:
    """Return the earliest time to repair a route, after another client replaced its rules.

    None if nobody replaced them, or if raybus may repair them now.
    """
    overwritten = observed.record.overwritten
    if (
        observed.overwriter is None
        or overwritten is UNSET
        or overwritten.streak < MAX_IMMEDIATE_REWRITES
        or now < overwritten.at
    ):
        return None
    moment = overwritten.at + min(
        MAX_REWRITE_DELAY,
        timedelta(seconds=0.5) * 2 ** min(overwritten.streak - MAX_IMMEDIATE_REWRITES, 8),
    )
    return moment if now < moment else None


def _build_correction(
    observed: Observed,
    have: HttpRoute,
    backends: Sequence[BackendRef],
    record: Record,
    *,
    shows_gates: bool,
    now: datetime,
) -> Json | None:
    """Return the merge patch that writes the backends and the record to an existing route.

    None if the route needs no patch, or if raybus may not write to it. All routes get the same
    record, so that the next route to carry the traffic starts with the current weights.

    A former route of the user keeps the backends and the record that raybus wrote until the Gateway
    accepts the current route; then the patch removes them. A former route of raybus stays until the
    user deletes it, because only the user knows when it is unused. While the RayService's
    annotation has an invalid route name, no route loses what raybus wrote.
    """
    meta, own, patch = observed.service.metadata, observed.own_backends, None
    if have is not observed.route and have is not observed.our_route:
        is_taken = not (
            find_problem(observed)
            or observed.gateway_trouble
            or weighted_route.invalid_route_name(observed.service)
        )
        if is_taken:
            return gateway_api.release(have, meta, own)
    if not _is_usable(observed, have):
        return None
    if have.metadata.name == names.http_route(meta.name):
        patch = gateway_api.corrected(HTTP_ROUTE, have, meta, backends, record)
    elif weighted_route.too_many_backends(have, own, len(backends)) is None:
        patch = gateway_api.corrected_users(have, meta, own, backends, record)
    if patch is not None or traffic_record.is_current(
        record, records.of_route(have), shows_gates=shows_gates, now=now
    ):
        return patch
    return {"metadata": gateway_api.patch_meta(have, record)}


def _is_usable(observed: Observed, have: HttpRoute) -> bool:
    """Return whether raybus may write its backends to a route.

    If the user's route is the weighted route, it must have a rule for the traffic.
    """
    if weighted_route.refusal(observed.service, have) is not None:
        return False
    needs_rule = have is observed.route and weighted_route.is_users(observed.service)
    return not needs_rule or bool(weighted_route.rules_of(have, observed.own_backends))


def is_ours(observed: Observed, have: Gateway | Route) -> bool:
    """Return whether the RayService owns this object and the object is not being deleted.

    Objects of other owners that use an expected name are neither changed nor deleted.
    """
    return have.metadata.deletion_timestamp is None and owner.owns(
        observed.service.metadata, have.metadata
    )


def _plan_grpc_route(observed: Observed, parts: Sequence[Part]) -> Iterator[Action]:
    """Yield the action that creates, patches or deletes the GRPCRoute; none if it is right.

    The GRPCRoute exists only if a cluster takes gRPC calls.
    """
    meta, have, is_wanted = observed.service.metadata, observed.grpc_route, _wants_grpc(observed)
    offered = [
        (view.cluster, share.weight, ports.of_grpc(view.cluster.raw_spec)) for view, share in parts
    ]
    backends = [
        gateway_api.backend(cluster, weight, port)
        for cluster, weight, port in offered
        if port is not None
    ]
    if have is None and is_wanted:
        report = events.CREATED[GRPC_ROUTE].format(
            f"{meta.namespace}/{names.grpc_route(meta.name)}"
        )
        yield Create(
            resource=GRPC_ROUTE, body=gateway_api.build(GRPC_ROUTE, meta, backends), events=report
        )
    if have is None or not is_ours(observed, have):
        return
    route_meta, where = have.metadata, have.metadata.namespaced_name
    if is_wanted and (patch := gateway_api.corrected(GRPC_ROUTE, have, meta, backends)) is not None:
        yield Patch(
            resource=GRPC_ROUTE,
            name=route_meta.name,
            patch=patch,
            events=events.UPDATED[GRPC_ROUTE].format(where),
        )
    elif not is_wanted and not backends:
        report = events.DELETED[GRPC_ROUTE].format(where)
        yield Delete(resource=GRPC_ROUTE, name=route_meta.name, uid=route_meta.uid, events=report)


def _wants_grpc(observed: Observed) -> bool:
    """Return whether raybus routes gRPC calls.

    This is so if an application takes gRPC calls, the user brought no route, and the API server
    knows the kind GRPCRoute.
    """
    is_ours = not weighted_route.is_users(observed.service)
    return (
        is_ours and observed.grpc_port is not None and GRPC_ROUTE.kind not in observed.unknown_kinds
    )
