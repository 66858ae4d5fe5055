"""The plan of one reconcile of a RayService: the order of decisions (spec rayservice §5.2).

Deletion, validation, suspend and the time limit come first, as in KubeRay; then clusters, Serve, Services and status. The
status is written where its durability matters: a pending name before its cluster exists, a promotion after both Services
select the cluster.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import conditions, labels
from common.api.event import warning
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayServiceStatus
from common.kube.resources import RAY_CLUSTER, SERVICE
from common.problem import Problem, message_of
from common.ray import goal_revision, serve_config, serve_writer, submit
from common.ray.goal_revision import Spec
from common.ray.revision import Given
from common.ray.serve_writer import Writer
from common.ray.submit import Submit
from common.runtime.actions import Action, Create, Delete, EmitEvent, Patch, Plan, SetFinalizers, earliest
from common.upgrade import controls as upgrade_controls
from common.upgrade import traffic_record
from service_reconciler import draining, events, initializing, plain_service, polling, serving, upgrade_events
from service_reconciler.actions import RecordRevision, UpdateServiceStatus
from service_reconciler.events import Outcome
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion import control as upgrade
from service_reconciler.promotion import dangling, pending, promote
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.pending import Decision, Step
from service_reconciler.reasons import ConditionType, EventReason, Reason
from service_reconciler.resources import ray_cluster
from service_reconciler.resources.ray_cluster import Match
from service_reconciler.serve import capacity_parity, gateway_problems, problems
from service_reconciler.status import compute, room, suspend
from service_reconciler.status.compute import Result
from service_reconciler.status.conditions import is_timed_out
from service_reconciler.status.suspend import State

CONFIGS: Final = "configs"
"""The chain of Serve configs: whatever else is refused, a cluster gets its own."""
CLEANUP: Final = "cleanup"
RELEASE: Final = timedelta(seconds=30)
"""How long a RayService that goes waits for its part in a user's route to be taken out."""


def make_plan(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Decide what one observation leads to; the same observation at the same time gives the same plan."""
    published = upgrade_events.current_state(observed, now=now)
    if observed.service.metadata.deletion_timestamp is not None:
        plan = _deletion(observed, now=now)
        return msgspec.structs.replace(plan, actions=(*published, *plan.actions))
    living = _living(observed, now=now)
    cleanup = dangling.decide(observed, now=now)
    return Plan(
        actions=(*_finalizer(observed), *published, *living.actions, *_cleaned(observed, cleanup, now=now)),
        requeue_at=earliest(living.requeue_at, cleanup.requeue_at),
        note=living.note,
    )


def _cleaned(observed: Observed, cleanup: dangling.Cleanup, *, now: datetime) -> tuple[Action, ...]:
    """Return the writes about unneeded clusters: a quota that refuses a new one may wait for the end of an old one."""
    return tuple(msgspec.structs.replace(each, chain=CLEANUP) for each in draining.writes(observed, cleanup, now=now))


def _deletion(observed: Observed, *, now: datetime) -> Plan[Action]:
    meta = observed.service.metadata
    if labels.RAYSERVICE_FINALIZER not in meta.finalizers:
        return Plan(note="the RayService is going")
    if not observed.clusters and _is_route_held(observed, now=now):
        return Plan(requeue_at=now + polling.STARTING, note="traffic-manager takes our part out of the user's route")
    if not observed.clusters:
        kept = tuple(each for each in meta.finalizers if each != labels.RAYSERVICE_FINALIZER)
        actions = (*upgrade_events.deleted(observed, now=now), SetFinalizers(finalizers=kept))
        return Plan(actions=actions, note="all its clusters are gone")
    gone = (
        *upgrade_events.deleted(observed, now=now),
        *(draining.deletion(each) for each in _alive(observed.clusters)),
    )
    return Plan(actions=gone, requeue_at=now + polling.STARTING, note="its clusters are going")


def _is_route_held(observed: Observed, *, now: datetime) -> bool:
    """Return whether a user's route still holds something of ours; the wait for that is limited."""
    since = observed.service.metadata.deletion_timestamp
    is_held = any(traffic_record.ANNOTATION in each.metadata.annotations for each in observed.users_routes)
    return is_held and since is not None and now - since < RELEASE


def _living(observed: Observed, *, now: datetime) -> Plan[Action]:
    if observed.violation is not None:
        text = observed.violation.message
        meta = observed.service.metadata
        event = warning(observed.violation.code, "Validate", f"{meta.namespace}/{meta.name}: {text}")
        status = compute.invalid(observed, text, now=now)
        report = (EmitEvent(event=event),) if compute.differs(observed.service.status, status) else ()
        return Plan(actions=(*_written(observed, status, now=now), *report), note=text)
    state = suspend.state(observed)
    if state is not State.AWAKE:
        return _suspended(observed, state, now=now)
    if is_timed_out(observed.service.status.conditions):
        return Plan(note="the service did not become ready in time")
    return _running(observed, now=now)


def _suspended(observed: Observed, state: State, *, now: datetime) -> Plan[Action]:
    match state:
        case State.REQUESTED:
            status = suspend.requested(observed, now=now)
            actions = (*upgrade_events.suspended(observed, now=now), *_written(observed, status, now=now))
            return Plan(actions=actions, requeue_at=now, note="suspend is requested")
        case State.SUSPENDING:
            gone = (*upgrade_events.swept(observed, now=now), *_everything(observed))
            written = _written(observed, suspend.suspending(observed, now=now), now=now)
            requeue_at = now + polling.STARTING
            return Plan(actions=(*gone, *written), requeue_at=requeue_at, note="everything is being deleted")
        case State.COMPLETE:
            status = suspend.complete(observed, now=now)
            return Plan(actions=_written(observed, status, now=now), requeue_at=now, note="everything is deleted")
        case State.RESUMED:
            status = suspend.resumed(observed, now=now)
            return Plan(actions=_written(observed, status, now=now), requeue_at=now, note="the service starts anew")
        case State.SUSPENDED | State.AWAKE:
            return Plan(note="the service is suspended")


def _running(observed: Observed, *, now: datetime) -> Plan[Action]:
    control = upgrade.decide(observed, now=now)
    decision = pending.decide(observed, control)
    sent = _submissions(observed, decision, control, now=now)
    switch, names, note = _traffic(observed, decision, control)
    problem = switch.problem or problems.find(observed, _next_view(observed, decision), now=now)
    problem = problem or gateway_problems.find(observed, now=now)
    problem = problem or capacity_parity.find(observed, is_back=decision.rollback is not None, now=now)
    limit = initializing.limit(observed.service.metadata.annotations)
    result = Result(names=names, cause=_why(control, problem), limit=limit, rollback=decision.rollback, control=control)
    status = compute.compute(observed, result, now=now)
    has_timed_out = is_timed_out(status.conditions)
    actions: list[Action] = [
        *_growth(observed, decision, control),
        *sent,
        *plain_service.label_writes(observed),
        *switch.actions,
        *upgrade_events.before(observed, names, status, now=now),
        *_written(observed, status, now=now),
        *upgrade_events.after(observed, names, status, now=now),
    ]
    created = [] if has_timed_out else _creation(observed, names)
    actions += [EmitEvent(event=events.timeout(observed, now=now))] if has_timed_out else created
    actions += serving.head_labels(observed)
    outcome = Outcome(names=names, problem=problem, status=status)
    actions += [EmitEvent(event=each) for each in events.transitions(observed, decision, control, outcome)]
    if room.is_cut(status) and not room.is_cut(observed.service.status):
        actions.append(EmitEvent(event=warning(EventReason.STATUS_TRUNCATED, "Reconcile", room.left_out())))
    requeue_at = (
        now
        if sent or created or names != observed.names
        else earliest(control.requeue_at, _next_poll(observed, status, limit_is_set=limit is not None, now=now))
    )
    return Plan(actions=tuple(actions), requeue_at=requeue_at, note=f"{decision.note}; {note}")


def _why(control: Control, problem: Problem[Reason] | None) -> str | None:
    """Return why the service, or its upgrade, makes no progress."""
    return "; ".join(each.message for each in (control.pause, problem) if each is not None) or None


def _traffic(observed: Observed, decision: Decision, control: Control) -> tuple[serving.Switch, Names, str]:
    """Return the writes that move the Services, and the names once they are done."""
    if decision.step is not Step.KEEP:
        return serving.Switch(), decision.names, decision.note
    by_selector = not observed.is_incremental
    target, note = (
        promote.target(observed, message_of(control.pause)) if by_selector else promote.target_in_steps(observed)
    )
    view = next(
        (each for each in (observed.active, observed.pending) if each is not None and each.name == target), None
    )
    if view is None:
        return serving.Switch(), decision.names, note
    switch = serving.point_at(observed, view)
    if switch.problem is not None:
        return switch, decision.names, switch.problem.message
    is_promoted = target == decision.names.pending
    return switch, Names(active=target) if is_promoted else decision.names, note


def _submissions(observed: Observed, decision: Decision, control: Control, *, now: datetime) -> list[Action]:
    """Return what is sent to dashboards; the active cluster keeps its config while another is on its way."""
    if serve_writer.of(observed.service) is not Writer.SERVICE_RECONCILER:
        return []
    goal = observed.service.spec.serve_config_v2
    actions: list[Action] = []
    frozen = bool(decision.names.pending) or control.abort is not None
    pairs = ((observed.pending if decision.step is Step.KEEP else None, False), (observed.active, frozen))
    for view, is_frozen in pairs:
        if view is None:
            continue
        submission = submit.decide(view, goal, frozen=is_frozen, now=now)
        config = submission.config
        if config is None and view.record and view.given is not None:
            capacity = serve_config.read(view.given).target_capacity
            config = view.given if submit.has_other_capacity(view, capacity, now=now) else None
        if config is not None:
            given = Given(
                serve_config=config,
                spec_hash=view.cluster.metadata.annotations.get(labels.SPEC_HASH, ""),
                upgrade_strategy=observed.service.raw_spec.get("upgradeStrategy") or {},
            )
            where = _where(view.cluster)
            report = events.config_sent(where)
            if submission.drift is not None:
                report = events.config_restored(where, submission.drift)
            actions.append(Submit(cluster=view.cluster, given=given, after=view.record, events=report, chain=CONFIGS))
    return actions


def _growth(observed: Observed, decision: Decision, control: Control) -> list[Action]:
    """Return changes to existing clusters: appended worker groups, and renewed annotations."""
    if decision.step is not Step.KEEP or decision.rollback is not None or control.abort is not None:
        return []
    version = observed.config.version
    role, view = ("pending", observed.pending) if decision.names.pending else ("active", observed.active)
    if view is None:
        return []
    report = events.cluster_updated(role, _where(view.cluster))
    match observed.match(view):
        case Match.APPENDED:
            patch = ray_cluster.growth(view.cluster, observed.service, version=version)
        case Match.FULL if ray_cluster.needs_stamp(view.cluster, observed.service, version=version):
            patch = ray_cluster.stamp(view.cluster, observed.service, version=version)
        case Match.FULL | Match.DIFFERENT:
            return []
    return [Patch(resource=RAY_CLUSTER, name=view.name, patch=patch, events=report, is_side=True)]


def _creation(observed: Observed, names: Names) -> list[Action]:
    """Return the creation of a cluster with a name that is durable by now."""
    if not names.pending or (observed.pending is not None and observed.pending.name == names.pending):
        return []
    starts_small = observed.is_incremental and observed.active is not None
    body = ray_cluster.build(
        observed.service,
        names.pending,
        version=observed.config.version,
        starts_small=starts_small,
        replaces=names.active,
    )
    where = f"{observed.service.metadata.namespace}/{names.pending}"
    kept = upgrade_controls.of(observed.service).history
    return [
        RecordRevision(before=_served(observed), kept=kept),
        Create(resource=RAY_CLUSTER, body=body, events=events.cluster_created(where), is_side=True),
    ]


def _served(observed: Observed) -> Spec | None:
    """Return the spec of the cluster that serves, with the Serve config that it has."""
    view = observed.active
    return goal_revision.served_by(view.cluster, view.given) if view is not None else None


def _next_view(observed: Observed, decision: Decision) -> ClusterView | None:
    """Return the cluster with the problems that matter: it is to serve next."""
    if decision.step is Step.NEW:
        return None
    is_forward = decision.step is Step.KEEP and decision.rollback is None
    return observed.pending if is_forward and observed.pending is not None else observed.active


def _next_poll(observed: Observed, status: RayServiceStatus, *, limit_is_set: bool, now: datetime) -> datetime | None:
    polls = [
        now + polling.interval(view, is_pending=is_pending, rest=observed.rest, now=now)
        for view, is_pending in ((observed.active, False), (observed.pending, True))
        if view is not None
    ]
    if limit_is_set:
        polls.append(_deadline(observed, status, now=now))
    return min(polls, default=now + polling.STARTING)


def _deadline(observed: Observed, status: RayServiceStatus, *, now: datetime) -> datetime:
    """Return when a service that still initializes is out of time."""
    limit = initializing.limit(observed.service.metadata.annotations)
    found = conditions.find(status.conditions, ConditionType.READY)
    if limit is None or found is None or found.reason != Reason.INITIALIZING:
        return now + observed.rest
    return found.last_transition_time + limit


def _finalizer(observed: Observed) -> tuple[Action, ...]:
    finalizers = observed.service.metadata.finalizers
    if labels.RAYSERVICE_FINALIZER in finalizers:
        return ()
    service = observed.service
    config = ray_cluster.filled(service.raw_cluster_config) if observed.config.writes_zero_values else None
    spec = None if config is None else {"rayClusterConfig": config}
    wanted = (*finalizers, labels.RAYSERVICE_FINALIZER)
    return (SetFinalizers(finalizers=wanted, spec=spec, events=events.finalizer_refused()),)


def _written(observed: Observed, status: RayServiceStatus, *, now: datetime) -> tuple[Action, ...]:
    if not compute.differs(observed.service.status, status):
        return ()
    return (UpdateServiceStatus(status=compute.stamped(status, now=now), events=events.status_refused()),)


def _everything(observed: Observed) -> list[Action]:
    clusters: list[Action] = [draining.deletion(each, suspending=True) for each in _alive(observed.clusters)]
    services: list[Action] = [
        Delete(
            resource=SERVICE,
            name=each.metadata.name,
            uid=each.metadata.uid,
            events=events.service_deleted(f"{each.metadata.namespace}/{each.metadata.name}"),
        )
        for each in observed.services
        if each.metadata.deletion_timestamp is None
    ]
    return [*clusters, *services]


def _alive(clusters: Iterable[RayCluster]) -> list[RayCluster]:
    return [each for each in clusters if each.metadata.deletion_timestamp is None]


def _where(cluster: RayCluster) -> str:
    return f"{cluster.metadata.namespace}/{cluster.metadata.name}"
