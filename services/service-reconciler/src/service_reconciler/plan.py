"""The plan of one reconcile of a RayService: the order of its decisions (spec rayservice §5.2).

Deletion, suspend, validation and the initializing timeout are decided first, then clusters, Serve
configs, Services and status. Unlike in KubeRay, suspend comes before validation, so a RayService
with an invalid spec can be suspended. The position of the status write in the plan makes later
writes safe: a pending name is durable before its cluster is created, and a promotion is recorded
after both Services select the cluster.
"""

from collections.abc import Iterable, Set
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import conditions, labels
from common.api.ray_service import RayServiceStatus
from common.conditions import ConditionUpdate
from common.errors import message_of
from common.kube.resources import POD, RAY_CLUSTER, SERVICE
from common.ray import goal_revision, poll_interval, serve_status, serve_writer, submit
from common.ray.submit import Submit
from common.ray.view import head_is_ready
from common.runtime.actions import (
    FINALIZER_REFUSED,
    STATUS_REFUSED,
    Action,
    Create,
    Delete,
    EmitEvent,
    Finalizer,
    Patch,
    Plan,
    SetFinalizers,
    earliest,
    normal,
    warning,
)
from common.upgrade import policy as upgrade_policy
from common.upgrade import traffic_record
from common.upgrade.service_conditions import ConditionType, Reason
from service_reconciler import draining, events, problems, serving, upgrade_events
from service_reconciler.actions import RecordRevision, ReportPolicy, UpdateServiceStatus
from service_reconciler.observed import REREAD, ClusterView, Names, Observed, PolicyReading
from service_reconciler.promotion import control as controls
from service_reconciler.promotion import promote, rollback
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.rollback import PendingChange, RollbackDecision
from service_reconciler.reasons import EventReason
from service_reconciler.resources import ray_cluster
from service_reconciler.status import compute, suspend
from service_reconciler.status.conditions import Assessment, is_timed_out
from service_reconciler.status.suspend import SuspendState

ROUTE_RELEASE_TIMEOUT: Final = timedelta(seconds=30)
"""Time that a deleted RayService waits until raybus's backends are removed from users' routes."""
FINALIZER_TIMEOUT: Final = timedelta(minutes=10)
"""Time after which a deleted RayService no longer waits for the end of its RayClusters.

This is twice the default time limit for the clean-up of Redis by a RayCluster (300 s). The deletion
of the RayClusters is requested by then, so the finalizer protects nothing any more.
"""
FINALIZER: Final = Finalizer(
    name=labels.RAYSERVICE_FINALIZER,
    limit=lambda _: FINALIZER_TIMEOUT,
    event=events.released_in_quarantine,
)
"""The finalizer of raybus on a RayService.

Its limit and Event apply if an object that raybus cannot read (in quarantine) blocks the deletion.
"""
RELEASE_CHAIN: Final = "release"
"""Name of the action chain that removes the finalizer although RayClusters still exist.

A failed action ends its chain. A separate chain still runs if a cluster's deletion is refused.
"""
UNREADY_POLL_INTERVAL: Final = timedelta(seconds=0.5)
"""Shortest poll interval of the active cluster's dashboard while its applications do not run."""
STARTUP_INTERVAL: Final = timedelta(seconds=1)
"""Shortest time until the next reconcile while a cluster has no ready head.

Changes of its pods also trigger reconciles.
"""
MAX_SILENT_POLL_INTERVAL: Final = timedelta(seconds=2.5)
"""Longest poll interval of a silent dashboard. Its recovery must be seen within 10 s."""


def make_plan(observed: Observed, now: datetime) -> Plan[Action]:
    """Return the plan for an observation; it depends on `observed` and `now` only."""
    meta = observed.service.metadata
    published = upgrade_events.of_status(observed, observed.names, observed.service.status, now=now)
    if meta.deletion_timestamp is not None:
        going = _plan_deletion(observed, now=now)
        return msgspec.structs.replace(going, actions=(*published, *going.actions))
    # A suspend deletes all clusters at once and needs nothing from the spec.
    decided, cleanup = _plan_suspension(observed, now=now), Plan[Action]()
    if decided is None and observed.is_namespace_ending:
        decided = Plan(requeue_at=now + STARTUP_INTERVAL, note="the namespace is being deleted")
    elif decided is None:
        decided = _plan_violation_report(observed, now=now) or _plan_run(observed, now=now)
        cleanup = draining.decide(observed, _list_named_clusters(decided), now=now)
    first: list[Action] = []
    if labels.RAYSERVICE_FINALIZER not in meta.finalizers:
        config = observed.service.raw_cluster_config
        spec = (
            {"rayClusterConfig": ray_cluster.filled(config)}
            if observed.config.writes_zero_values
            else None
        )
        finalizers = (*meta.finalizers, labels.RAYSERVICE_FINALIZER)
        first = [SetFinalizers(finalizers=finalizers, spec=spec, events=FINALIZER_REFUSED)]
    planned = (*first, *published, *decided.actions, *cleanup.actions)
    actions = _without_second_pod_writes(planned)
    return Plan(
        actions=actions,
        requeue_at=(
            now if len(actions) < len(planned) else earliest(decided.requeue_at, cleanup.requeue_at)
        ),
        note=decided.note,
    )


def _without_second_pod_writes(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Keep the first patch of each pod and drop later patches of the same pod.

    All patches of a pod carry the same resourceVersion, so the API server would refuse the second.
    The next reconcile sends it.
    """
    written, kept = set[str](), list[Action]()
    for action in actions:
        if isinstance(action, Patch) and action.resource is POD:
            if action.name in written:
                continue
            written.add(action.name)
        kept.append(action)
    return tuple(kept)


def _list_named_clusters(plan: Plan[Action]) -> Set[str]:
    """Return the clusters that the status names after a plan; empty if it writes no status."""
    written = (action.status for action in plan.actions if isinstance(action, UpdateServiceStatus))
    names = map(Names.from_status, written)
    return {
        name
        for names_of_status in names
        for name in (names_of_status.active, names_of_status.pending)
        if name
    }


def _plan_deletion(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Return the plan that deletes all clusters, and removes the finalizer once they are gone."""
    meta = observed.service.metadata
    if labels.RAYSERVICE_FINALIZER not in meta.finalizers:
        return Plan(note="the RayService is going")
    if observed.clusters:
        gone = (
            *upgrade_events.deleted(observed, now=now),
            *map(draining.plan_deletion, observed.undeleted),
            *_plan_finalizer_release(observed, now=now),
        )
        note = "waiting for its RayClusters to be deleted"
        return Plan(actions=gone, requeue_at=now + STARTUP_INTERVAL, note=note)
    is_held = any(
        traffic_record.ANNOTATION in route.metadata.annotations for route in observed.users_routes
    )
    if (
        is_held
        and meta.deletion_timestamp is not None
        and now - meta.deletion_timestamp < ROUTE_RELEASE_TIMEOUT
    ):
        return Plan(
            requeue_at=now + STARTUP_INTERVAL,
            note="traffic-manager takes our part out of the user's route",
        )
    kept = tuple(
        finalizer for finalizer in meta.finalizers if finalizer != labels.RAYSERVICE_FINALIZER
    )
    actions = (*upgrade_events.deleted(observed, now=now), SetFinalizers(finalizers=kept))
    return Plan(actions=actions, note="all its clusters are gone")


def _plan_finalizer_release(observed: Observed, *, now: datetime) -> list[Action]:
    """Return the actions that remove the finalizer although RayClusters still exist.

    Empty until `FINALIZER_TIMEOUT` after the deletion of the RayService.
    """
    meta = observed.service.metadata
    if meta.deletion_timestamp is None or now - meta.deletion_timestamp < FINALIZER_TIMEOUT:
        return []
    kept = tuple(
        finalizer for finalizer in meta.finalizers if finalizer != labels.RAYSERVICE_FINALIZER
    )
    event = events.finalizer_released(observed, FINALIZER_TIMEOUT)
    return [
        EmitEvent(event=event, chain=RELEASE_CHAIN),
        SetFinalizers(finalizers=kept, chain=RELEASE_CHAIN),
    ]


def _plan_violation_report(observed: Observed, *, now: datetime) -> Plan[Action] | None:
    """Return the plan that only reports a violation of the spec or metadata; None if valid."""
    if observed.violation is None:
        return None
    code, text = observed.violation.code, observed.violation.message
    status = compute.build_invalid_status(observed, text, now=now)
    if status is observed.service.status:
        return Plan(note=text)
    write = UpdateServiceStatus(status=status, events=STATUS_REFUSED)
    event = warning(code, "Validate", f"{observed.service.metadata.namespaced_name}: {text}")
    return Plan(actions=(write, EmitEvent(event=event)), note=text)


def _plan_suspension(observed: Observed, *, now: datetime) -> Plan[Action] | None:
    """Return the plan that suspends or resumes the RayService; None if there is nothing to suspend.

    Each plan writes one state to the status; the next reconcile reads that state and continues.
    """
    state = suspend.decide_state(observed)
    if state is SuspendState.AWAKE:
        return None
    if state is SuspendState.SUSPENDED:
        return Plan(note=state)
    actions: list[Action] = []
    if state is SuspendState.REQUESTED:
        why = "The RayService is suspended; all its clusters are deleted."
        actions += upgrade_events.cut_short(observed, "ServiceSuspended", why, now=now)
    elif state is SuspendState.SUSPENDING:
        actions += upgrade_events.swept(observed, now=now)
        actions += [
            draining.plan_deletion(cluster, events.CLUSTER_SUSPENDED)
            for cluster in observed.undeleted
        ]
        for meta in (
            service.metadata
            for service in observed.services
            if service.metadata.deletion_timestamp is None
        ):
            report = events.SERVICE_SUSPENDED.format(meta.namespaced_name)
            actions.append(Delete(resource=SERVICE, name=meta.name, uid=meta.uid, events=report))
    elif state is SuspendState.COMPLETE:
        for problem in suspend.list_kept_objects(observed):
            note = f"The RayService is suspended, and an object is left alone: {problem.message}"
            actions.append(EmitEvent(event=warning(EventReason.OBJECT_NOT_OWNED, "Suspend", note)))
    status = suspend.build_status(observed, state, now=now)
    if status is not observed.service.status:
        actions.append(UpdateServiceStatus(status=status, events=STATUS_REFUSED))
    requeue_at = now + STARTUP_INTERVAL if state is SuspendState.SUSPENDING else now
    return Plan(actions=tuple(actions), requeue_at=requeue_at, note=state)


def _plan_run(observed: Observed, *, now: datetime) -> Plan[Action]:
    """Return the plan that adapts clusters, Serve configs, Services and status to the spec."""
    # Only suspend and resume start the service again.
    if is_timed_out(observed.service.status.conditions):
        return Plan(note="the service did not become ready in time")
    control = controls.decide(observed, now=now)
    decision = rollback.decide(observed, control)
    switch, names, note = _decide_switch(observed, decision, control)
    is_previewed = decision.is_forward and bool(names.pending)
    next_view = (observed.pending if decision.is_forward else None) or observed.active
    problem = (
        switch.problem
        or problems.of_cluster(
            observed, None if decision.change is PendingChange.NEW else next_view, now=now
        )
        or problems.of_gateway(observed, now=now)
        or problems.of_parity(observed, is_back=decision.rollback is not None, now=now)
        or (problems.of_preview(observed) if is_previewed else None)
        or (problems.of_gates(observed) if decision.rollback is None else None)
    )
    assessment = Assessment(
        observed=observed, now=now, control=control, decision=decision, names=names, problem=problem
    )
    status = compute.compute(assessment)
    has_timed_out, sent = is_timed_out(status.conditions), _plan_submissions(assessment)
    created = [] if has_timed_out else _plan_creation(observed, names)
    written: list[Action] = []
    if status is not observed.service.status:
        written.append(UpdateServiceStatus(status=status, events=STATUS_REFUSED))
        written += upgrade_events.of_status(observed, Names.from_status(status), status, now=now)
    actions = (
        *draining.plan_drain_cancellation(observed, names, now=now),
        *_plan_policy_report(observed, now=now),
        *(_plan_growth(assessment) or _plan_policy_edit(assessment)),
        *sent,
        *serving.plan_shared_labels(observed),
        *serving.plan_preview(observed, is_wanted=is_previewed),
        *switch.actions,
        *upgrade_events.past_verdicts(observed),
        *upgrade_events.steps(observed, now=now),
        *upgrade_events.present_verdicts(observed),
        *upgrade_events.ended(observed, status, now=now),
        *written,
        *([EmitEvent(event=events.timeout(observed, now=now))] if has_timed_out else created),
        *serving.plan_head_labels(observed),
        *(EmitEvent(event=event) for event in events.transitions(assessment, status)),
    )
    is_changed = bool(sent or created or observed.returning) or names != observed.names
    requeue_at = (
        now
        if is_changed
        else earliest(control.requeue_at, _get_next_poll(observed, status, now=now))
    )
    return Plan(actions=actions, requeue_at=requeue_at, note=f"{decision.note}; {note}")


def _decide_switch(
    observed: Observed, decision: RollbackDecision, control: Control
) -> tuple[serving.Switch, Names, str]:
    """Return the switch of the Services, the cluster names after the switch, and the reason."""
    if decision.change is not PendingChange.KEEP or observed.returning is not None:
        return serving.Switch(), decision.names, decision.note
    if observed.is_incremental:
        target, note = promote.choose_target_in_steps(observed)
    else:
        target, note = promote.choose_target(observed, message_of(control.pause))
    view = next((view for view in observed.views if view.name == target), None)
    if view is None:
        return serving.Switch(), decision.names, note
    switch = serving.plan_switch(observed, view)
    if switch.problem is not None:
        return switch, decision.names, switch.problem.message
    return (
        switch,
        Names(active=target) if target == decision.names.pending else decision.names,
        note,
    )


def _plan_submissions(assessment: Assessment) -> list[Submit]:
    """Return the actions that send Serve configs; none if traffic-manager sends them.

    The active cluster keeps its config during an upgrade and after an abort.
    """
    service, observed, decision = (
        assessment.observed.service,
        assessment.observed,
        assessment.decision,
    )
    if serve_writer.is_recorded(service):
        return []
    frozen = bool(decision.names.pending) or assessment.control.abort is not None
    views = (
        (observed.pending if decision.change is PendingChange.KEEP else None, False),
        (observed.active, frozen),
    )
    sent = (
        submit.submission(view, service, frozen=is_frozen, now=assessment.now)
        for view, is_frozen in views
        if view is not None
    )
    return [submit for submit in sent if submit is not None]


def _plan_policy_report(observed: Observed, *, now: datetime) -> list[Action]:
    """Return the action that writes condition Accepted of the UpgradePolicy.

    Empty if the condition is up to date or the policy does not exist.
    """
    reading, kind = observed.policy_read, "Accepted"
    if reading is None or reading.stored is None:
        return []
    update = ConditionUpdate(kind, "True", kind, "Upgrades can follow this policy.")
    if reading.problem is not None:
        consequence = (
            "Upgrades that are to begin with it wait; upgrades in progress keep what they follow."
        )
        update = ConditionUpdate(
            kind, "False", "Invalid", f"{reading.problem.message}. {consequence}"
        )
    meta, before = reading.stored.metadata, list(reading.stored.status.conditions)
    after = conditions.updated(before, update, now=now, generation=meta.generation)
    report = ReportPolicy(
        name=meta.name, resource_version=meta.resource_version, conditions=after, is_side=True
    )
    return [report] if after != before else []


def _plan_policy_edit(assessment: Assessment) -> list[Action]:
    """Return the action that records an edited UpgradePolicy on the new cluster.

    Empty without an edit. The upgrade follows the edited policy from then on. After a failed gate
    the upgrade keeps the earlier policy, which decides what follows from the failure.
    """
    observed, cluster = assessment.observed, assessment.observed.following
    record = None if observed.policy_read is None else observed.policy_read.record
    is_kept = assessment.decision.is_forward and assessment.control.abort is None
    if (
        cluster is None
        or record is None
        or not is_kept
        or controls.failed_gate(observed) is not None
    ):
        return []
    where = cluster.metadata.namespaced_name
    note = (
        f"The upgrade to RayCluster {where} follows its UpgradePolicy as it was edited "
        "(applyEdits: AtOnce)"
    )
    edited = normal(EventReason.POLICY_EDITED, "Upgrade", note)
    return [
        draining.plan_annotation(
            cluster, "new", {labels.UPGRADE_POLICY_RECORD: record}, success=edited
        )
    ]


def _plan_growth(assessment: Assessment) -> list[Action]:
    """Return the action that adds worker groups to the newest cluster or renews its annotations.

    Empty if neither is needed, or if the upgrade is rolled back or aborted.
    """
    observed, decision = assessment.observed, assessment.decision
    role, view = (
        ("pending", observed.pending) if decision.names.pending else ("active", observed.active)
    )
    if view is None or not decision.is_forward or assessment.control.abort is not None:
        return []
    if (patch := ray_cluster.change(view.cluster, observed.service)) is None:
        return []
    report = events.CLUSTER_UPDATED.format(role, view.cluster.metadata.namespaced_name)
    return [Patch(resource=RAY_CLUSTER, name=view.name, patch=patch, events=report, is_side=True)]


def _plan_creation(observed: Observed, names: Names) -> list[Action]:
    """Return the actions that record the specs and then create the pending cluster.

    The plan writes the cluster's name to the status before these actions, so that the name is
    durable. Empty if the cluster exists or if its UpgradePolicy cannot be used.
    """
    service, active = observed.service, observed.active
    # A replaced cluster that is used again exists already.
    is_there = any(cluster.metadata.name == names.pending for cluster in observed.clusters)
    policy = PolicyReading() if active is None else observed.next_policy
    if not names.pending or is_there or policy is None or policy.problem is not None:
        return []
    body = ray_cluster.build(
        service,
        names.pending,
        starts_small=observed.is_incremental and active is not None,
        replaces=names.active,
        policy=policy.record,
    )
    report = events.CLUSTER_CREATED.format(f"{service.metadata.namespace}/{names.pending}")
    before = goal_revision.served_by(active.cluster, active.given) if active is not None else None
    return [
        RecordRevision(before=before, kept=observed.controls.history),
        Create(resource=RAY_CLUSTER, body=body, events=report, is_side=True),
    ]


def _get_next_poll(observed: Observed, status: RayServiceStatus, *, now: datetime) -> datetime:
    """Return when to reconcile next if no object changes.

    This is when a dashboard or an UpgradePolicy is read again, or at the initializing timeout.
    """
    polls = [now + _get_poll_interval(observed, view, now=now) for view in observed.views]
    limit, ready = (
        observed.initializing_limit,
        conditions.find(status.conditions, ConditionType.READY),
    )
    if limit is not None:
        is_initializing = ready is not None and ready.reason == Reason.INITIALIZING
        polls.append(
            ready.last_transition_time + limit if ready and is_initializing else now + observed.rest
        )
    following = (
        None if observed.following is None else upgrade_policy.of_cluster(observed.following)
    )
    polls += [now + REREAD] if following is not None and following.applies_edits_at_once else []
    return min(polls, default=now + STARTUP_INTERVAL)


def _get_poll_interval(observed: Observed, view: ClusterView, *, now: datetime) -> timedelta:
    """Return the poll interval of a cluster's dashboard.

    The interval grows while nothing changes. KubeRay polls every 2 s.
    """
    quiet = poll_interval.interval(now - poll_interval.last_changed_at(view))
    details = view.declared
    if not head_is_ready(view.cluster):
        return max(STARTUP_INTERVAL, quiet)
    if details is None:
        return min(
            MAX_SILENT_POLL_INTERVAL,
            poll_interval.MIN_INTERVAL * 2.0 ** min(view.serve.failures, 8),
        )
    if view is observed.pending:
        return quiet
    return observed.rest if serve_status.is_running(details) else max(UNREADY_POLL_INTERVAL, quiet)
