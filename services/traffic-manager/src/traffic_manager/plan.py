"""The plan of one reconcile: Gateway, backend Services, routes, and the next step of an upgrade.

service-reconciler decides which clusters exist and in which direction traffic moves, and records
both in the status. This service moves the traffic. Each reconcile changes at most one thing that
users can see: weights or capacities. The serving cluster is protected even before
service-reconciler has observed the spec, and even if it rejects the spec (ADR 41). Spec rayservice
§8, §9; acceptance 39-68.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from common.errors import message_of
from common.kube.resources import HTTP_ROUTE, SERVICE
from common.ray import autoscaled_capacity, poll_interval, serve_status, submit
from common.ray.submit import Submit
from common.ray.view import head_is_ready
from common.runtime.actions import MAIN, Action, Create, EmitEvent, Patch, Plan, warning
from common.upgrade import traffic_record as records
from common.upgrade.events import Direction
from common.upgrade.service_conditions import ConditionType
from common.upgrade.traffic_record import WHOLE, ClusterTraffic
from traffic_manager import events, options, routing, side_routes
from traffic_manager.actions import BACKENDS, MoveCapacity
from traffic_manager.events import EventReason
from traffic_manager.migration import progression as progressions
from traffic_manager.migration import step, weights
from traffic_manager.migration.progression import Judgement, Progression
from traffic_manager.migration.state import ClusterState, Migration, Split
from traffic_manager.observed import Observed, ServedCluster
from traffic_manager.resources import gateway_api
from traffic_manager.routing import Part
from traffic_manager.status import health, traffic_record

STARTUP_POLL_INTERVAL: Final = timedelta(seconds=1)
"""Minimum time between two polls of Ray's dashboard while a single cluster starts."""
UPGRADE_POLL_INTERVAL: Final = timedelta(seconds=1)
"""Maximum time between two polls of Ray's dashboards while two clusters share the traffic."""
FOREIGN_SERVICE_POLL_INTERVAL: Final = timedelta(seconds=30)
"""Time between two polls while a single cluster's Serve Service belongs to another owner."""
NO_TRAFFIC: Final = ClusterTraffic(capacity=0, weight=0)
"""Traffic record entry of a cluster that has no capacity and no traffic yet."""
ALL_TRAFFIC: Final = ClusterTraffic(capacity=WHOLE, weight=WHOLE)
"""Traffic record entry of a cluster that has all capacity and all traffic."""


def make_plan(observed: Observed, now: datetime) -> Plan[Action]:
    """Decide the actions for one observation; a pure function of observation and time."""
    if observed.service.metadata.deletion_timestamp is not None:
        gone = tuple(routing.plan_route_release(observed))
        return Plan(actions=gone, note="the RayService is going, and all that it owns with it")
    if observed.is_true(ConditionType.SUSPENDING) or observed.is_true(ConditionType.SUSPENDED):
        gone = (
            *side_routes.plan_side_route_removal(observed),
            *routing.plan_route_removal(observed),
        )
        return Plan(actions=gone, note="the service is suspended")
    if (due := routing.rewrite_after(observed, now=now)) is not None:
        note = "somebody replaces our backends again and again"
        return Plan(
            actions=_plan_shedding(observed, now=now),
            requeue_at=min(due, now + UPGRADE_POLL_INTERVAL),
            note=note,
        )
    if not observed.is_spec_observed:
        return _plan_unobserved_spec(observed, now=now)
    if not observed.is_incremental:
        gone = (
            *side_routes.plan_side_route_removal(observed),
            *routing.plan_route_release(observed),
        )
        is_unrouted = Plan(actions=gone, note="its traffic needs no weighted route")
        return (
            _plan_leftover_route(observed, now=now)
            if routing.is_left_behind(observed)
            else is_unrouted
        )
    # a cluster without its Service has no proven capacity, so with two clusters no weight depends
    # on the Services; a single cluster gets all traffic at once, and its route needs its Service
    chain = MAIN if observed.pair is None else BACKENDS
    before = (*routing.plan_gateway(observed), *_plan_backends(observed, chain=chain))
    before += side_routes.plan_side_route_removal(observed) if observed.pair is None else ()
    if observed.pair is not None:
        plan = _plan_upgrade(observed, observed.pair, now=now)
    elif observed.sole is not None and observed.sole.has_foreign_service:
        note = "the name of the Serve Service belongs to another owner, so no route is written"
        plan = Plan(requeue_at=now + FOREIGN_SERVICE_POLL_INTERVAL, note=note)
    elif observed.sole is not None:
        plan = _plan_sole_cluster(observed, observed.sole, now=now)
    else:
        plan = Plan(note="there is no cluster yet")
    reports = (EmitEvent(event=event) for event in events.of_foreign_services(observed))
    return Plan(
        actions=(*before, *plan.actions, *reports),
        requeue_at=now if before else plan.requeue_at,
        note=plan.note,
    )


def make_guard_plan(observed: Observed, now: datetime) -> Plan[Action]:
    """Decide the actions while the bus is silent: move traffic off a cluster that cannot carry it.

    No capacity grows, no object is created and no dashboard gets a Serve config, because
    service-reconciler and cluster-reconciler make no decisions without the bus either (ADR 17).
    """
    is_going = observed.service.metadata.deletion_timestamp is not None
    if (
        is_going
        or observed.is_true(ConditionType.SUSPENDING)
        or not observed.is_incremental
        or not observed.pending_name
    ):
        return Plan(note="the bus is silent, and no upgrade in steps is on")
    if (sole := observed.sole) is not None:
        single = _plan_sole_cluster(observed, sole, now=now).actions
        patches = (action for action in single if isinstance(action, Patch))
        actions = (*side_routes.plan_side_route_removal(observed), *patches)
    else:
        actions = _plan_shedding(observed, now=now)
    note = "the bus is silent: traffic leaves what cannot carry it"
    return Plan(actions=actions, requeue_at=now + UPGRADE_POLL_INTERVAL, note=note)


def _plan_unobserved_spec(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Protect the serving cluster until service-reconciler has observed the spec.

    An invalid spec is never observed, so the protection must not depend on it.
    """
    note = "service-reconciler has not taken in the spec as it is now"
    if not routing.is_left_behind(observed):
        beside = side_routes.plan_side_route_removal(observed) if observed.pair is None else ()
        return Plan(actions=beside, note=note)
    if observed.is_incremental and observed.pair is not None:
        return _plan_upgrade(observed, observed.pair, now=now)
    plan = _plan_leftover_route(observed, now=now)
    return msgspec.structs.replace(plan, note=f"{note}; {plan.note}")


def _plan_leftover_route(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Keep the weighted route on the serving cluster while no upgrade in steps is in progress.

    Requests may still come through the route (§9.5). Side routes belong to an upgrade, so they are
    removed.
    """
    view, pair = observed.sole, observed.pair
    if pair is not None:  # the active cluster, unless only the pending cluster can serve
        active, pending = pair
        is_dead = health.assess_health(active, now=now).surviving == 0
        view = pending if is_dead and health.ready_capacity(pending, WHOLE) > 0 else active
    beside = side_routes.plan_side_route_removal(observed)
    if view is None:
        return Plan(actions=beside, note="a route is left, and there is no cluster for it")
    share = _give_all_traffic(
        observed,
        traffic_record.get_traffic(observed.record, view.cluster.metadata, ALL_TRAFFIC),
        now=now,
    )
    return Plan(
        actions=(
            *beside,
            *_plan_backends(observed),
            *routing.plan_routes(observed, [(view, share)], now=now),
        ),
        requeue_at=None if pair is None else now + UPGRADE_POLL_INTERVAL,
        note="the route of an earlier strategy follows the cluster that serves",
    )


def _give_all_traffic(
    observed: Observed, share: ClusterTraffic, *, now: datetime
) -> ClusterTraffic:
    """Return a cluster's traffic record entry, `share`, changed to the weight 100."""
    return traffic_record.set_weight(
        share, WHOLE, now=now, is_followed=routing.find_lag(observed) is None
    )


def _plan_backends(observed: Observed, *, chain: str = MAIN) -> tuple[Action, ...]:
    """Return the actions that create missing Serve Services; `chain` is their chain in the plan.

    A cluster whose head has no Serve port gets none; service-reconciler reports the missing port.
    """
    bodies = (
        gateway_api.build_service(view.cluster)
        for view in observed.views
        if view.serve_service is None
    )
    return tuple(
        Create(resource=SERVICE, body=body, chain=chain) for body in bodies if body is not None
    )


def _plan_sole_cluster(observed: Observed, view: ServedCluster, *, now: datetime) -> Plan[Action]:
    """Move all traffic and capacity to `view`, the only cluster that is still needed.

    Clusters that are no longer needed keep their traffic until `view` can serve.
    """
    share = traffic_record.get_traffic(observed.record, view.cluster.metadata, ALL_TRAFFIC)
    is_frozen = view is observed.active and (bool(observed.pending_name) or observed.is_aborted)
    sent = submit.submission(
        view, observed.service, frozen=is_frozen, capacity=share.capacity, now=now
    )
    routed = _plan_others_traffic(observed, view, share, now=now)
    if routed is None:
        share = _give_all_traffic(observed, share, now=now)
        routed = routing.plan_routes(observed, [(view, share)], now=now)
    acts = routed if sent is None else (*routed, sent)
    if not acts and share.capacity != WHOLE:
        acts = _plan_capacities(
            observed, [((view, share), WHOLE)], observed.record.clusters, now=now
        )
    quiet = poll_interval.interval(now - poll_interval.last_changed_at(view))
    if not head_is_ready(view.cluster) or view.serve.details is None:
        quiet = max(STARTUP_POLL_INTERVAL, quiet)
    elif view.declared is not None and serve_status.is_running(view.declared):
        quiet = observed.rest
    return Plan(
        actions=acts, requeue_at=now if acts else now + quiet, note="one cluster gets everything"
    )


def _plan_others_traffic(
    observed: Observed, view: ServedCluster, share: ClusterTraffic, *, now: datetime
) -> tuple[Action, ...] | None:
    """Return the actions that keep traffic on clusters that are no longer needed.

    None if the traffic moves to `view`, the only cluster that is needed; this happens once `view`
    can serve. The weight of deleted clusters goes to the existing cluster with the largest weight.
    `share` is the traffic record entry of `view`. Before the first promotion no cluster serves, so
    there are no actions, unless the route still sends to a deleted cluster.
    """
    others = observed.others
    is_new = (
        bool(others)
        and view is not observed.active
        and health.ready_capacity(view, share.capacity) < WHOLE
    )
    is_first = not observed.active_name and (
        not observed.gone or routing.record_route(observed) is None
    )
    if not is_new and (others or not is_first):
        return None
    if not observed.gone or not others:
        return ()
    shares = [
        (other, traffic_record.get_traffic(observed.record, other.cluster.metadata, NO_TRAFFIC))
        for other in others
    ]
    best, most = max(shares, key=lambda part: part[1].weight)
    return routing.plan_routes(
        observed, [(best, _give_all_traffic(observed, most, now=now))], now=now
    )


class _Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """Both clusters of an upgrade, and the state from which the next step is decided."""

    parts: tuple[Part, Part]
    """The active cluster and the pending cluster."""
    migration: Migration
    progression: Progression


def _assess_upgrade(
    observed: Observed, views: tuple[ServedCluster, ServedCluster], *, now: datetime
) -> _Upgrade:
    active, pending = views
    direction = (
        Direction.BACK
        if observed.is_true(ConditionType.ROLLBACK_IN_PROGRESS)
        else Direction.FORWARD
    )
    is_bound = direction is Direction.FORWARD and observed.is_spec_observed
    goal = observed.service.spec.serve_config_v2 if is_bound else None
    lag = routing.find_lag(observed)
    record = traffic_record.without_future_times(observed.record, now=now)
    new = traffic_record.get_traffic(record, pending.cluster.metadata, NO_TRAFFIC)
    new = traffic_record.set_weight(new, new.weight, now=now, is_followed=lag is None)
    rest = ClusterTraffic(capacity=WHOLE, weight=WHOLE - new.weight)
    old = traffic_record.get_traffic(record, active.cluster.metadata, rest)
    old = traffic_record.set_weight(old, rest.weight, now=now, is_followed=lag is None)
    mirror = traffic_record.get_numbers(records.of_status(observed.service).clusters)
    sides = (
        health.build_state(active, old, now=now, is_active=True),
        health.build_state(pending, new, goal=goal, now=now),
    )
    if observed.policy is not None and new.weight > 0:  # no hold time passes in a config change
        since = new.same_since if observed.candidate is not None else now
        sides = sides[0], msgspec.structs.replace(sides[1], moved_at=since)
    if observed.controls.parity:
        sides = _apply_parity(views, sides, direction)
    progression = Progression(policy=options.policy(observed, direction))
    if (
        observed.policy is not None
        and direction is Direction.FORWARD
        and not observed.controls.promotes
    ):
        progression = progressions.decide_progression(
            observed, observed.policy, progression.policy, sides[1], now=now
        )
    if progression.judged is not None and progression.leaves:
        why = f"the gate {progression.judged.failed}"
        refused = msgspec.structs.replace(
            sides[1], proven=0, sustainable=0, unhealthy_reason=why, has_failed_gate=True
        )
        sides = sides[0], refused
    standing, distrust = progressions.decide_standing(observed, progression, direction, new.weight)
    sides = weights.withhold(sides[0], standing, distrust), sides[1]
    migration = Migration(
        direction=direction,
        standing=standing,
        distrust=distrust,
        active=sides[0],
        pending=sides[1],
        pause=options.pause(observed) or progression.hold,
        gateway_problem=message_of(observed.gateway_trouble),
        route_problem=message_of(routing.find_problem(observed)),
        lag=message_of(lag),
        changed_at=record.changed_at,
        is_mirrored=traffic_record.get_numbers({active.name: old, pending.name: new}).items()
        <= mirror.items(),
    )
    return _Upgrade(
        parts=((active, old), (pending, new)), migration=migration, progression=progression
    )


def _plan_shedding(observed: Observed, *, now: datetime) -> tuple[Action, ...]:
    """Return the actions that move traffic off a cluster that cannot carry it, during an upgrade.

    The mirror route passes requests only to the active cluster. It is deleted once that cluster has
    lost traffic. A deletion that failed when the weights moved is repeated.
    """
    if observed.pair is None or not observed.is_incremental:
        return ()
    upgrade = _assess_upgrade(observed, observed.pair, now=now)
    split = weights.shed(upgrade.migration)
    if split is not None:
        return _plan_weights(observed, upgrade, split, is_shed=True, now=now)
    is_shared = upgrade.migration.active.weight < WHOLE
    return tuple(side_routes.plan_mirror_route(observed, 0)) if is_shared else ()


def _plan_upgrade(
    observed: Observed, views: tuple[ServedCluster, ServedCluster], *, now: datetime
) -> Plan[Action]:
    upgrade = _assess_upgrade(observed, views, now=now)
    m, policy, judged = upgrade.migration, upgrade.progression.policy, upgrade.progression.judged
    is_forward, soon = m.direction is Direction.FORWARD, now + poll_interval.MIN_INTERVAL
    next_step = (
        step.decide(m, policy, now=now)
        if observed.is_spec_observed
        else step.guard(m, policy) or step.HOLD
    )
    if next_step.is_shed:  # urgent, so no other action comes first
        actions = _plan_step(observed, upgrade, next_step, now=now)
        if actions:
            return Plan(actions=actions, requeue_at=soon, note=next_step.note)
    why = weights.unservable_traffic(m)
    stranded = (
        ()
        if why is None
        else (EmitEvent(event=warning(EventReason.TRAFFIC_NOT_CARRIED, "Upgrade", why)),)
    )
    routed = routing.plan_routes(observed, upgrade.parts, now=now, judged=judged)
    # In a rollback both clusters keep their Serve configs, else only the active cluster does (§12,
    # §8.10 G8): the config of a third spec must not run on the image of the first spec.
    # A cluster that failed a gate keeps its config too: the failure must not count for a new one.
    is_frozen = not is_forward or not observed.is_spec_observed or upgrade.progression.leaves
    active, pending = views
    config_of = partial(submit.submission, service=observed.service, now=now)
    of_pending = config_of(pending, frozen=is_frozen, capacity=m.pending.capacity)
    of_active = config_of(active, frozen=True, capacity=m.active.capacity)
    sent = [submission for submission in (of_pending, of_active) if submission is not None]
    beside = side_routes.plan_side_routes(observed, m.pending, upgrade.progression)
    if routed or sent:
        note = "the route and the Serve configs come first"
        return Plan(actions=(*stranded, *routed, *sent, *beside), requeue_at=soon, note=note)
    actions = () if next_step.is_shed else _plan_step(observed, upgrade, next_step, now=now)
    if not actions and not is_frozen and not policy.may_progress:
        actions = (EmitEvent(event=events.UPGRADE_CANNOT_PROGRESS),)
    if not actions:
        actions = routing.plan_routes(
            observed, upgrade.parts, now=now, judged=judged, shows_gates=True
        )
    requeue_at = _get_next_poll(m, views, next_step.requeue_at, now=now)
    # a write that moves weights contains the deletion of the mirror route already
    rest = (action for action in beside if action not in actions)
    return Plan(actions=(*stranded, *actions, *rest), requeue_at=requeue_at, note=next_step.note)


def _plan_step(
    observed: Observed, upgrade: _Upgrade, next_step: step.MigrationStep, *, now: datetime
) -> tuple[Action, ...]:
    """Return the actions of the step; empty if it moves neither weights nor capacities."""
    if next_step.weights is not None:
        return _plan_weights(
            observed, upgrade, next_step.weights, is_shed=next_step.is_shed, now=now
        )
    if next_step.capacities is None:
        return ()
    capacities = next_step.capacities.active, next_step.capacities.pending
    wanted = [*zip(upgrade.parts, capacities, strict=True)]
    return _plan_capacities(observed, wanted, {}, now=now, judged=upgrade.progression.judged)


def _plan_weights(
    observed: Observed, upgrade: _Upgrade, split: Split, *, is_shed: bool, now: datetime
) -> tuple[Action, ...]:
    """Return the actions that set the weights of `split` and delete the mirror route.

    No actions if the routes have these weights already.
    """
    is_followed = upgrade.migration.lag is None
    parts = [
        (
            view,
            traffic_record.set_weight(
                share, weight, now=now, is_followed=is_followed, is_shed=is_shed
            ),
        )
        for (view, share), weight in zip(upgrade.parts, (split.active, split.pending), strict=True)
    ]
    routed = routing.plan_routes(observed, parts, now=now, judged=upgrade.progression.judged)
    shifted = EmitEvent(event=events.traffic_shifted(observed, split))
    return (*side_routes.plan_mirror_route(observed, 0), *routed, shifted) if routed else ()


def _apply_parity(
    views: tuple[ServedCluster, ServedCluster],
    sides: tuple[ClusterState, ClusterState],
    direction: Direction,
) -> tuple[ClusterState, ClusterState]:
    """Return `sides`; the growing cluster's proven capacity is limited by its replica count."""
    (active, pending), (old, new) = views, sides
    if direction is Direction.FORWARD:
        return old, _limit_by_replicas(new, pending, active, old.weight, active.memory.whole)
    return _limit_by_replicas(old, active, pending, new.weight, active.memory.whole), new


def _limit_by_replicas(
    side: ClusterState,
    growing: ServedCluster,
    source: ServedCluster,
    weight: int,
    whole: Mapping[str, int] | None,
) -> ClusterState:
    """Limit the growing cluster's state `side` by comparing its replicas with those of `source`.

    `source` is the cluster that gives up traffic, and `weight` its weight. If the dashboard of
    `source` is silent, the limit follows from `whole`, the replicas with which the active cluster
    last carried all of the traffic.
    """
    if growing.declared is None:
        return side
    if source.declared is not None:
        return _apply_limit(
            side,
            *autoscaled_capacity.limit_weight(source.declared, weight, growing.declared, whole),
        )
    if health.is_unknown(source):
        return _apply_limit(side, *autoscaled_capacity.limit_by_needs(growing.declared, whole))
    return side


def _apply_limit(side: ClusterState, limit: int, why: str) -> ClusterState:
    return (
        side
        if limit >= side.proven
        else msgspec.structs.replace(side, proven=limit, not_ready_reason=why)
    )


def _get_next_poll(
    m: Migration, views: tuple[ServedCluster, ServedCluster], due: datetime | None, *, now: datetime
) -> datetime:
    """Return when to observe again.

    Dashboards send no messages, so they are polled. Some changes also become due by time alone; the
    next step is due at `due`.
    """
    changed = (m.changed_at, *map(poll_interval.last_changed_at, views))
    poll = poll_interval.interval(now - max(moment for moment in changed if moment is not None))
    is_shared = m.active.weight > 0 and m.pending.weight > 0
    is_uncertain = m.active.excess or m.pending.excess or any(view.serve.failures for view in views)
    soon = now + (
        poll_interval.MIN_INTERVAL
        if is_uncertain
        else min(poll, UPGRADE_POLL_INTERVAL)
        if is_shared
        else poll
    )
    sick_since = (view.memory.unhealthy_since for view in views)
    moments = (soon, due, *(moment + health.GRACE for moment in sick_since if moment is not None))
    return min(moment for moment in moments if moment is not None and moment > now)


def _plan_capacities(
    observed: Observed,
    wanted: Sequence[tuple[Part, int]],
    others: Mapping[str, ClusterTraffic],
    *,
    now: datetime,
    judged: Judgement | None = None,
) -> tuple[Action, ...]:
    """Return the actions that give clusters the `wanted` target capacities and record them.

    Without a route, which holds the traffic record, there are no actions. `others` are entries of
    the record that stay as they are.

    If a cluster that shrinks does not answer or has no Serve config, its capacity is only recorded.
    If a cluster that grows has no Serve config, or its head is not ready, nothing is sent at all.
    Nothing is sent soon after an unanswered PUT either: Ray may have accepted that PUT, and the old
    capacity would then be restored and changed again without end.
    """
    route = routing.record_route(observed)
    changed = [
        (view, capacity) for (view, share), capacity in wanted[::-1] if capacity != share.capacity
    ]
    if route is None or any(
        submit.is_backing_off(view, view.given, now=now) for view, _ in changed
    ):
        return ()
    submits: list[Submit] = []
    for view, capacity in changed:
        meta, report = (
            view.cluster.metadata,
            events.CAPACITY_SENT.format(view.cluster.metadata.namespaced_name),
        )
        shrinks = capacity < traffic_record.get_traffic(observed.record, meta, ALL_TRAFFIC).capacity
        if shrinks and (view.given is None or not health.is_answering(view)):
            continue
        if view.given is None or not head_is_ready(view.cluster):
            return ()
        submits.append(submit.submit_action(view, observed.service, view.given, capacity, report))
    clusters = {
        view.name: msgspec.structs.replace(share, capacity=capacity)
        for (view, share), capacity in wanted
    }
    record = traffic_record.build_record(observed, {**others, **clusters}, now=now, judged=judged)
    patch = {"metadata": gateway_api.patch_meta(route, record)}
    write = Patch(resource=HTTP_ROUTE, name=route.metadata.name, patch=patch)
    reports = (EmitEvent(event=event) for event in events.of_gates(observed, judged))
    return (MoveCapacity(submits=tuple(submits), record=write), *reports)
