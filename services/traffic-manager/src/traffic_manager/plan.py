"""The plan of one reconcile of a RayService: its Gateway, its backends, its routes, and the next step of an upgrade.

service-reconciler decides which clusters there are and in which direction traffic goes, in the status; this service moves it.
Each pass changes one thing that users can see: weights, or capacities. What serves is guarded whatever the spec is, also while
service-reconciler has not taken it in, or refuses it (ADR 11). Spec rayservice §8, §9; acceptance 39-68.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common.api.event import Event, normal, warning
from common.api.gateway import RoutingProblem, route_problem
from common.errors import InvalidSpec
from common.kube.resources import SERVICE
from common.problem import message_of
from common.ray import parity, poll_interval, serve_status
from common.ray.submit import Submit
from common.ray.view import head_is_ready
from common.runtime.actions import MAIN, Action, Create, EmitEvent, Patch, Plan
from common.upgrade import controls as upgrade_controls
from common.upgrade import traffic_record as records
from common.upgrade.policy import Policy
from common.upgrade.traffic_record import WHOLE, Record, Share
from traffic_manager import options, overwriting, routing, serving
from traffic_manager.actions import BACKENDS, MoveCapacity
from traffic_manager.migration import step, weights
from traffic_manager.migration.state import Direction, Migration, Side, Split
from traffic_manager.observed import Baseline, ClusterView, Observed
from traffic_manager.reasons import EventReason
from traffic_manager.resources import cluster_serve_service
from traffic_manager.status import health, proven_capacity, traffic_record

STARTING: Final = timedelta(seconds=1)
WATCHED: Final = timedelta(seconds=1)
"""How often clusters are asked that share the traffic."""
NEW: Final = Share(capacity=0, weight=0)
ALL: Final = Share(capacity=WHOLE, weight=WHOLE)


def make_plan(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Decide what one observation leads to; the same observation at the same time gives the same plan."""
    if observed.service.metadata.deletion_timestamp is not None:
        return Plan(actions=routing.released(observed), note="the RayService is going, and all that it owns with it")
    if observed.is_true("Suspending") or observed.is_true("Suspended"):
        return Plan(actions=routing.removal(observed), note="the service is suspended")
    if (due := overwriting.due(observed, now=now)) is not None:
        note = "somebody replaces our backends again and again"
        return Plan(actions=_sheds(observed, now=now), requeue_at=min(due, now + WATCHED), note=note)
    if not observed.is_spec_observed:
        return _unobserved(observed, now=now)
    return _vetted(observed, now=now)


def make_guard_plan(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Decide what an observation without the bus leads to: what a cluster of an upgrade is observed not to carry leaves it (ADR 17).

    Nothing grows, nothing is created, nothing is sent to a dashboard: service-reconciler and cluster-reconciler do not decide either.
    """
    is_going = observed.service.metadata.deletion_timestamp is not None
    if is_going or observed.is_true("Suspending") or not observed.is_incremental or not observed.pending_name:
        return Plan(note="the bus is silent, and no upgrade in steps is on")
    active, pending = observed.active, observed.pending
    if active is None or pending is None:
        sole = active or pending
        planned = () if sole is None else _single(observed, sole, now=now).actions
        actions = tuple(each for each in planned if isinstance(each, Patch))
    else:
        actions = _sheds(observed, now=now)
    return Plan(
        actions=actions, requeue_at=now + WATCHED, note="the bus is silent: traffic leaves what cannot carry it"
    )


def _vetted(observed: Observed, *, now: datetime) -> Plan[Action]:
    if observed.is_incremental:
        return _incremental(observed, now=now)
    if routing.is_left_behind(observed):
        return _left_behind(observed, now=now)
    return Plan(actions=routing.released(observed), note="its traffic needs no weighted route")


def _incremental(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Keep Gateway, routes and configs of a service with traffic that moves in steps, and take the next step."""
    active, pending = observed.active, observed.pending
    # with two clusters weights follow proven capacity: a cluster without its Service has none; a single cluster gets all at once
    chain = BACKENDS if active is not None and pending is not None else MAIN
    before = (*routing.gateway_writes(observed), *_backends(observed, chain=chain))
    if active is not None and pending is not None:
        plan = _upgrading(observed, active, pending, now=now)
    elif (sole := active or pending) is not None:
        plan = _single(observed, sole, now=now)
    else:
        plan = Plan(note="there is no cluster yet")
    requeue_at = plan.requeue_at if not before else now
    return Plan(actions=(*before, *plan.actions), requeue_at=requeue_at, note=plan.note)


def _unobserved(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Guard what serves by its route until service-reconciler has observed the spec; it never does with an invalid one."""
    note = "service-reconciler has not taken in the spec as it is now"
    active, pending = observed.active, observed.pending
    if not routing.is_left_behind(observed):
        return Plan(note=note)
    if observed.is_incremental and active is not None and pending is not None:
        return _upgrading(observed, active, pending, now=now)
    plan = _left_behind(observed, now=now)
    return Plan(actions=plan.actions, requeue_at=plan.requeue_at, note=f"{note}; {plan.note}")


def _left_behind(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Keep a route from the time of weighted traffic at the cluster that serves, for requests may still come that way (§9.5)."""
    view = _serving(observed, now=now)
    if view is None:
        return Plan(note="a route is left, and there is no cluster for it")
    share = traffic_record.share(observed.record, view.cluster.metadata, ALL)
    share = traffic_record.weighed(share, WHOLE, now=now, is_followed=_is_followed(observed))
    acts = (*_backends(observed), *routing.writes(observed, {view.name: share}, (view,), now=now))
    is_shared = observed.active is not None and observed.pending is not None
    return Plan(
        actions=acts,
        requeue_at=now + WATCHED if is_shared else None,
        note="the route of an earlier strategy follows the cluster that serves",
    )


def _serving(observed: Observed, *, now: datetime) -> ClusterView | None:
    """Return the cluster for a route that shares nothing: the active one, unless only the pending one can serve."""
    active, pending = observed.active, observed.pending
    if pending is None or active is None:
        return active or pending
    is_dead = health.of(active, now=now).sustainable == 0
    return pending if is_dead and health.ready_capacity(pending, WHOLE) > 0 else active


def _backends(observed: Observed, *, chain: str = MAIN) -> tuple[Action, ...]:
    actions: list[Action] = []
    for view in (observed.active, observed.pending):
        if view is None or view.serve_service is not None:
            continue
        try:
            actions.append(Create(resource=SERVICE, body=cluster_serve_service.build(view.cluster), chain=chain))
        except InvalidSpec:  # service-reconciler reports it to the user
            continue
    return tuple(actions)


def _single(observed: Observed, view: ClusterView, *, now: datetime) -> Plan[Action]:
    """Give one cluster everything: the first one, the only one, or the last one."""
    share = traffic_record.share(observed.record, view.cluster.metadata, ALL)
    is_frozen = view is observed.active and (bool(observed.pending_name) or observed.is_aborted)
    sent = serving.submissions(observed, [(view, share.capacity, is_frozen)], now=now)
    if (others := _serving_still(observed, view, share)) is not None:
        wanted = share
        routed = _redistributed(observed, others, now=now)
    else:
        wanted = traffic_record.weighed(share, WHOLE, now=now, is_followed=_is_followed(observed))
        routed = routing.writes(observed, {view.name: wanted}, (view,), now=now)
    moved: tuple[Action, ...] = ()
    if not routed and not sent and share.capacity != WHOLE and routing.record_route(observed) is not None:
        clusters = {**observed.record.clusters, view.name: msgspec.structs.replace(wanted, capacity=WHOLE)}
        moved = _moved(observed, [(view, WHOLE)], clusters, now=now)
    acts = (*routed, *sent, *moved)
    requeue_at = now if acts else now + _interval(view, rest=observed.rest, now=now)
    return Plan(actions=acts, requeue_at=requeue_at, note="one cluster gets everything")


def _serving_still(observed: Observed, view: ClusterView, share: Share) -> tuple[ClusterView, ...] | None:
    """Return the clusters that get the requests until the only one that is wanted can; None when that one gets them.

    There are none before the first cluster is promoted, unless the route sends to what does not exist any more.
    """
    if observed.others and view is not observed.active and health.ready_capacity(view, share.capacity) < WHOLE:
        return observed.others
    is_first = not observed.active_name and (not observed.gone or routing.record_route(observed) is None)
    return () if is_first and not observed.others else None


def _redistributed(observed: Observed, others: tuple[ClusterView, ...], *, now: datetime) -> tuple[Action, ...]:
    """Return the actions that give the share of deleted clusters to the existing cluster with the largest share."""
    held = {each.name: traffic_record.share(observed.record, each.cluster.metadata, NEW) for each in others}
    if not observed.gone or not others:
        return ()
    best = max(others, key=lambda each: held[each.name].weight)
    share = traffic_record.weighed(held[best.name], WHOLE, now=now, is_followed=_is_followed(observed))
    return routing.writes(observed, {best.name: share}, (best,), now=now)


class _Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Both clusters of an upgrade as a step is decided from them."""

    migration: Migration
    policy: Policy
    shares: dict[str, Share]


def _situation(observed: Observed, active: ClusterView, pending: ClusterView, *, now: datetime) -> _Situation:
    direction = Direction.BACK if observed.is_true("RollbackInProgress") else Direction.FORWARD
    is_back = direction is Direction.BACK
    record = traffic_record.without_future_times(observed.record, now=now)
    shares = _shares(observed, record, active, pending, now=now)
    old, new = shares[active.name], shares[pending.name]
    goal = None if is_back or not observed.is_spec_observed else observed.service.spec.serve_config_v2
    controls = upgrade_controls.of(observed.service)
    policy = options.accelerated(options.policy(observed, controls), observed, controls, direction)
    sides = proven_capacity.side(active, old, now=now), proven_capacity.side(pending, new, goal=goal, now=now)
    if controls.parity:
        sides = _in_parity((active, pending), sides, direction)
        sides = (
            _taking_over(active, sides[0], pending, whole=active.whole),
            _taking_over(pending, sides[1], active, whole=active.whole),
        )
    migration = Migration(
        direction=direction,
        active=sides[0],
        pending=sides[1],
        pause=options.pause(observed, controls),
        gateway_problem=message_of(routing.gateway_problem(observed)),
        route_problem=message_of(routing.problem(observed)),
        lag=message_of(_lag(observed)),
        changed_at=record.changed_at,
        is_mirrored=_is_mirrored(observed, shares),
    )
    return _Situation(migration=migration, policy=policy, shares=shares)


def _sheds(observed: Observed, *, now: datetime) -> tuple[Action, ...]:
    """Return what takes traffic away from a cluster of an upgrade that is observed not to carry it, and nothing else."""
    active, pending = observed.active, observed.pending
    if active is None or pending is None or not observed.is_incremental:
        return ()
    found = _situation(observed, active, pending, now=now)
    guarded = step.guard(found.migration, found.policy)
    if guarded is None or guarded.weights is None:
        return ()
    return _stepped(observed, (active, pending), found.shares, guarded, now=now)


def _upgrading(observed: Observed, active: ClusterView, pending: ClusterView, *, now: datetime) -> Plan[Action]:
    found = _situation(observed, active, pending, now=now)
    migration, policy, shares = found.migration, found.policy, found.shares
    direction, old, new = migration.direction, shares[active.name], shares[pending.name]
    stranded = _stranded(migration)
    guarded = step.guard(migration, policy)
    if guarded is not None and guarded.weights is not None:  # nothing that may take its time comes before
        acts = _stepped(observed, (active, pending), shares, guarded, now=now)
        if acts:
            return Plan(actions=acts, requeue_at=now + poll_interval.FASTEST, note=guarded.note)
    routed = routing.writes(observed, shares, (active, pending), now=now)
    frozen = direction is Direction.BACK or not observed.is_spec_observed
    sent = serving.submissions(observed, [(pending, new.capacity, frozen), (active, old.capacity, True)], now=now)
    if routed or sent:
        note = "the route and the Serve configs come first"
        return Plan(actions=(*stranded, *routed, *sent), requeue_at=now + poll_interval.FASTEST, note=note)
    next_step = step.decide(migration, policy, now=now) if observed.is_spec_observed else guarded or step.HOLD
    actions = _stepped(observed, (active, pending), shares, next_step, now=now)
    if not actions and direction is Direction.FORWARD and observed.is_spec_observed and not policy.may_progress:
        actions = (EmitEvent(event=_cannot_progress()),)
    requeue_at = _next_poll(migration, (active, pending), next_step.requeue_at, now=now)
    return Plan(actions=(*stranded, *actions), requeue_at=requeue_at, note=next_step.note)


def _in_parity(
    views: tuple[ClusterView, ClusterView], sides: tuple[Side, Side], direction: Direction
) -> tuple[Side, Side]:
    """Return both sides; the proven capacity of the scale-up side is no more than its autoscaled replicas carry."""
    is_forward = direction is Direction.FORWARD
    source, growing = views if is_forward else views[::-1]
    weight, side = (sides[0].weight, sides[1]) if is_forward else (sides[1].weight, sides[0])
    if source.serve.details is None or growing.serve.details is None:
        return sides
    whole = None if views[0].whole is None else views[0].whole.replicas
    limit, why = parity.limit(source.serve.details, weight, growing.serve.details, whole)
    if limit >= side.proven:
        return sides
    bound = msgspec.structs.replace(side, proven=limit, not_ready_reason=why)
    return (sides[0], bound) if is_forward else (bound, sides[1])


def _taking_over(view: ClusterView, side: Side, losing: ClusterView, *, whole: Baseline | None) -> Side:
    """Return a side; next to one with a silent dashboard and no other problem it gets no more than its replicas can follow to."""
    if view.serve.details is None or not health.is_silent(losing):
        return side
    limit, why = parity.takeover(view.serve.details, None if whole is None else whole.replicas)
    if limit >= side.ready:
        return side
    return msgspec.structs.replace(side, ready=limit, proven=min(limit, side.proven), not_ready_reason=why)


def _shares(
    observed: Observed, record: Record, active: ClusterView, pending: ClusterView, *, now: datetime
) -> dict[str, Share]:
    """Return what both clusters have by the record; one that it does not name has nothing, or the rest."""
    is_followed = _is_followed(observed)
    new = traffic_record.share(record, pending.cluster.metadata, NEW)
    new = traffic_record.weighed(new, new.weight, now=now, is_followed=is_followed)
    rest = Share(capacity=WHOLE, weight=WHOLE - new.weight)
    old = traffic_record.share(record, active.cluster.metadata, rest)
    old = traffic_record.weighed(old, WHOLE - new.weight, now=now, is_followed=is_followed)
    return {active.name: old, pending.name: new}


def _is_followed(observed: Observed) -> bool:
    """Return whether the Gateways follow the routes as they are."""
    return _lag(observed) is None


def _lag(observed: Observed) -> RoutingProblem | None:
    """Return why a Gateway may still follow an earlier generation of the route; no route sends nothing."""
    route = routing.record_route(observed)
    if route is None:
        return None
    return routing.problem(observed) if route is observed.route else route_problem(route)


def _stranded(m: Migration) -> tuple[EmitEvent, ...]:
    """Return the event of traffic that no cluster can carry."""
    why = weights.stranded(m)
    return () if why is None else (EmitEvent(event=warning(EventReason.TRAFFIC_NOT_CARRIED, "Upgrade", why)),)


def _next_poll(
    m: Migration, views: tuple[ClusterView, ClusterView], due: datetime | None, *, now: datetime
) -> datetime:
    """Return when to observe again what sends no message, and when time alone allows or demands a change."""
    changed = (m.changed_at,) if m.changed_at is not None else ()
    poll = poll_interval.interval(now - max(*(_last_changed_at(each) for each in views), *changed))
    is_shared = m.active.weight > 0 and m.pending.weight > 0
    is_uncertain = any(
        side.excess or view.serve.failures for side, view in zip((m.active, m.pending), views, strict=True)
    )
    moments = [now + (poll_interval.FASTEST if is_uncertain else min(poll, WATCHED) if is_shared else poll)]
    moments += [each.unhealthy_since + health.GRACE for each in views if each.unhealthy_since is not None]
    moments += [due] if due is not None else []
    return min(each for each in moments if each > now)


def _stepped(
    observed: Observed,
    views: tuple[ClusterView, ClusterView],
    shares: dict[str, Share],
    next_step: step.Step,
    *,
    now: datetime,
) -> tuple[Action, ...]:
    active, pending = views
    if (split := next_step.weights) is not None:
        is_followed = _is_followed(observed)
        moved = {
            view.name: traffic_record.weighed(
                shares[view.name], weight, now=now, is_followed=is_followed, is_shed=next_step.is_shed
            )
            for view, weight in ((active, split.active), (pending, split.pending))
        }
        routed = routing.writes(observed, moved, views, now=now)
        return (*routed, EmitEvent(event=_shifted(observed, split))) if routed else ()
    if (split := next_step.capacities) is not None:
        replace = msgspec.structs.replace
        clusters = {
            active.name: replace(shares[active.name], capacity=split.active),
            pending.name: replace(shares[pending.name], capacity=split.pending),
        }
        changed = [
            (view, clusters[view.name].capacity)
            for view in (pending, active)
            if clusters[view.name].capacity != shares[view.name].capacity
        ]
        return _moved(observed, changed, clusters, now=now)
    return ()


def _moved(
    observed: Observed, changed: list[tuple[ClusterView, int]], clusters: dict[str, Share], *, now: datetime
) -> tuple[Action, ...]:
    """Return the actions that give clusters new capacities, none when a cluster without a config would have to grow.

    There must be a route for the record. A cluster that shrinks and is dead, or has no config, is only recorded: it would not answer.
    Nor would the head of one that is to grow: nothing is sent before it is ready. Nor is anything sent right after a PUT without an answer:
    Ray may have carried it out, so what it runs was restored to the record and changed again without end.
    """
    if routing.record_route(observed) is None or any(serving.is_put_off(view, now=now) for view, _ in changed):
        return ()
    submits: list[Submit] = []
    for view, capacity in changed:
        put = serving.with_capacity(observed, view, capacity)
        shrinks = capacity < traffic_record.share(observed.record, view.cluster.metadata, ALL).capacity
        if shrinks and (put is None or not proven_capacity.is_alive(view)):
            continue
        if put is None or not head_is_ready(view.cluster):
            return ()
        submits.append(put)
    pair = (observed.active_name, observed.pending_name) if len(clusters) > 1 else None
    record = traffic_record.of(observed.record, clusters, now=now, pair=pair)
    return (MoveCapacity(submits=tuple(submits), record=routing.recorded(observed, record)),)


def _is_mirrored(observed: Observed, shares: dict[str, Share]) -> bool:
    mirror = records.of_status(observed.service).clusters
    return all(
        name in mirror and (mirror[name].capacity, mirror[name].weight) == (share.capacity, share.weight)
        for name, share in shares.items()
    )


def _shifted(observed: Observed, split: Split) -> Event:
    note = (
        f"{observed.active_name} gets {split.active} and {observed.pending_name} {split.pending} percent: {split.note}"
    )
    return normal(EventReason.TRAFFIC_SHIFTED, "Upgrade", note)


def _cannot_progress() -> Event:
    note = "The upgrade cannot progress: maxSurgePercent and stepSizePercent must both be greater than 0"
    return warning(EventReason.UPGRADE_CANNOT_PROGRESS, "Upgrade", note)


def _interval(view: ClusterView, *, rest: timedelta, now: datetime) -> timedelta:
    quiet = poll_interval.interval(now - _last_changed_at(view))
    details = view.serve.details
    if not head_is_ready(view.cluster) or details is None:
        return max(STARTING, quiet)
    return rest if serve_status.is_running(details) else quiet


def _last_changed_at(view: ClusterView) -> datetime:
    """Return when a cluster last changed, or was sent a config."""
    sent = (view.put_at,) if view.put_at is not None else ()
    return max((poll_interval.last_changed_at(view.cluster), *sent))
