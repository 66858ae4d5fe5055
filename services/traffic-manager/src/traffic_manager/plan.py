"""What one look at a RayService leads to: its Gateway, its backends, its routes, and the next step of an upgrade.

service-reconciler says which clusters there are and in which direction traffic goes, in the status; this service moves it.
Each pass changes one thing that users can see: weights, or capacities. Spec rayservice §8, §9; acceptance 39-68.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import traffic_record as records
from common import upgrade_controls
from common.api.event import Event, normal, warning
from common.errors import InvalidSpec
from common.kube.resources import SERVICE
from common.ray import pace, serve_status
from common.ray.view import head_is_ready
from common.runtime.plan import Plan
from common.traffic_record import WHOLE, Share
from traffic_manager import options, overwriting, routing, serving
from traffic_manager.actions import BACKENDS, MAIN, Action, Create, MoveCapacity, Submit, Tell
from traffic_manager.migration import step
from traffic_manager.migration.state import Direction, Migration, Split
from traffic_manager.observed import ClusterView, Observed
from traffic_manager.reasons import EventReason
from traffic_manager.resources import cluster_serve_service
from traffic_manager.status import proof, traffic_record

STARTING: Final = timedelta(seconds=1)
PATIENCE: Final = timedelta(seconds=10)
"""A pending cluster that cannot serve for longer gives its share of the traffic back."""
NEW: Final = Share(capacity=0, weight=0)
ALL: Final = Share(capacity=WHOLE, weight=WHOLE)


def make_plan(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Decide what one observation leads to; the same observation at the same time gives the same plan."""
    if observed.service.metadata.deletion_timestamp is not None:
        return Plan(actions=routing.released(observed), note="the RayService is going, and all that it owns with it")
    if observed.says("Suspending") or observed.says("Suspended"):
        return Plan(actions=routing.removal(observed), note="the service is suspended")
    if not observed.is_incremental and not routing.is_left_behind(observed):
        return Plan(actions=routing.released(observed), note="its traffic needs no weighted route")
    if not observed.is_vetted:
        return Plan(note="service-reconciler has not taken in the spec as it is now")
    if not observed.is_incremental:
        return _left_behind(observed, now=now)
    return _incremental(observed, now=now)


def _incremental(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Keep Gateway, routes and configs of a service whose traffic moves in steps, and take the next step."""
    if (due := overwriting.due(observed, now=now)) is not None:
        return Plan(look_again_at=due, note="somebody replaces our backends again and again")
    active, pending = observed.active, observed.pending
    # with two clusters weights follow proof, which a cluster without its Service does not have; one alone gets all at once
    chain = BACKENDS if active is not None and pending is not None else MAIN
    before = (*routing.gateway_writes(observed), *_backends(observed, chain=chain))
    if active is not None and pending is not None:
        plan = _upgrading(observed, active, pending, now=now)
    elif (sole := active or pending) is not None:
        plan = _alone(observed, sole, now=now)
    else:
        plan = Plan(note="there is no cluster yet")
    look = plan.look_again_at if not before else now
    return Plan(actions=(*before, *plan.actions), look_again_at=look, note=plan.note)


def _left_behind(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Keep a route from the time of weighted traffic at the active cluster, for requests may still come that way (§9.5)."""
    active = observed.active
    if active is None:
        return Plan(note="a route is left, and there is no cluster for it")
    return Plan(
        actions=(*_backends(observed), *routing.writes(observed, {active.name: ALL}, (active,), now=now)),
        note="the route of an earlier strategy follows the active cluster",
    )


def _backends(observed: Observed, *, chain: str = MAIN) -> tuple[Action, ...]:
    actions: list[Action] = []
    for view in (observed.active, observed.pending):
        if view is None or view.serve_service is not None:
            continue
        try:
            actions.append(Create(resource=SERVICE, body=cluster_serve_service.build(view.cluster), chain=chain))
        except InvalidSpec:  # service-reconciler tells the user
            continue
    return tuple(actions)


def _alone(observed: Observed, view: ClusterView, *, now: datetime) -> Plan[Action]:
    """Give one cluster everything: the first one, the only one, or the one that is left."""
    share = traffic_record.share(observed.record, view.cluster.metadata, ALL)
    is_frozen = view is observed.active and (bool(observed.pending_name) or observed.is_aborted)
    sent = serving.submissions(observed, [(view, share.capacity, is_frozen)], now=now)
    is_first = not observed.active_name
    is_left = not is_first and observed.active is None
    side = proof.side(view, share)
    if is_first or (is_left and side.proof == 0):
        wanted = share
        routed: tuple[Action, ...] = ()
    else:
        wanted = traffic_record.weighed(share, WHOLE, now=now)
        routed = routing.writes(observed, {view.name: wanted}, (view,), now=now)
    moved: tuple[Action, ...] = ()
    if not routed and not sent and share.capacity != WHOLE and routing.record_route(observed) is not None:
        clusters = {**observed.record.clusters, view.name: msgspec.structs.replace(wanted, capacity=WHOLE)}
        moved = _moved(observed, [(view, WHOLE)], clusters, now=now)
    acts = (*routed, *sent, *moved)
    look = now if acts else now + _interval(view, rest=observed.rest, now=now)
    return Plan(actions=acts, look_again_at=look, note="one cluster gets everything")


def _upgrading(observed: Observed, active: ClusterView, pending: ClusterView, *, now: datetime) -> Plan[Action]:
    direction = Direction.BACK if observed.says("RollbackInProgress") else Direction.FORWARD
    is_back = direction is Direction.BACK
    record = traffic_record.believed(observed.record, now=now)
    new = traffic_record.share(record, pending.cluster.metadata, NEW)
    new = traffic_record.weighed(new, new.weight, now=now)
    rest = Share(capacity=WHOLE, weight=WHOLE - new.weight)
    old = traffic_record.weighed(
        traffic_record.share(record, active.cluster.metadata, rest), WHOLE - new.weight, now=now
    )
    shares = {active.name: old, pending.name: new}
    routed = routing.writes(observed, shares, (active, pending), now=now)
    sent = serving.submissions(observed, [(pending, new.capacity, is_back), (active, old.capacity, True)], now=now)
    if routed or sent:
        note = "the route and the Serve configs come first"
        return Plan(actions=(*routed, *sent), look_again_at=now + pace.FASTEST, note=note)
    goal = None if is_back else observed.service.spec.serve_config_v2
    controls = upgrade_controls.of(observed.service)
    policy = options.hastened(options.policy(observed, controls), observed, controls, direction)
    patience = max(PATIENCE, policy.interval)
    is_sick = pending.silent_since is not None and now - pending.silent_since > patience
    migration = Migration(
        direction=direction,
        active=proof.side(active, old),
        pending=proof.side(pending, new, goal=goal, is_sick=is_sick),
        pause=options.pause(observed, controls),
        gateway_problem=routing.gateway_problem(observed),
        route_problem=routing.problem(observed),
        changed_at=record.changed_at,
        is_mirrored=_is_mirrored(observed, shares),
    )
    next_step = step.decide(migration, policy, now=now)
    actions = _stepped(observed, (active, pending), shares, next_step, now=now)
    if not actions and direction is Direction.FORWARD and not policy.may_progress:
        actions = (Tell(event=_cannot_progress()),)
    changed = (record.changed_at,) if record.changed_at is not None else ()
    poll = now + pace.interval(now - max(_stirred(active), _stirred(pending), *changed))
    moments = [poll, *([next_step.look_again_at] if next_step.look_again_at is not None else [])]
    return Plan(actions=actions, look_again_at=min(moments), note=next_step.note)


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
        moved = {
            active.name: traffic_record.weighed(shares[active.name], split.active, now=now),
            pending.name: traffic_record.weighed(shares[pending.name], split.pending, now=now),
        }
        return (*routing.writes(observed, moved, views, now=now), Tell(event=_shifted(observed, split)))
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
    """Return what gives clusters new capacities, none when a cluster would have to grow that nobody ever gave a config.

    There must be a route for the record. A cluster that shrinks and is dead, or has no config, is only recorded: nobody would answer.
    """
    if routing.record_route(observed) is None:
        return ()
    submits: list[Submit] = []
    for view, capacity in changed:
        put = serving.with_capacity(observed, view, capacity)
        shrinks = capacity < traffic_record.share(observed.record, view.cluster.metadata, ALL).capacity
        if shrinks and (put is None or not proof.is_alive(view)):
            continue
        if put is None:
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
    quiet = pace.interval(now - _stirred(view))
    details = view.serve.details
    if not head_is_ready(view.cluster) or details is None:
        return max(STARTING, quiet)
    return rest if serve_status.is_running(details) else quiet


def _stirred(view: ClusterView) -> datetime:
    """Return when a cluster last changed, or was told to."""
    told = (view.put_at,) if view.put_at is not None else ()
    return max((pace.stirred(view.cluster), *told))
