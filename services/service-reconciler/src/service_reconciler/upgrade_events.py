"""Derive the upgrade events for external consumers from the observation and the status.

This module does no I/O. The same state gives the same events, byte for byte, so publishing again is
harmless and no record of published events is needed. The position of an event in the plan makes
sure that a crash loses no event:

- A step of traffic-manager (`steps`) is published before the status shows the step, because
  traffic-manager waits for the status before its next step.
- The state in the status (`of_status`) is published after the status is written, and once more by
  each new process as long as the state holds.
- State that the next status write erases is published before that write (`ended`).
- The end of an upgrade is published before the object that shows it is deleted.

An event that is due both before and after a write is in the plan twice; the publisher sends it
once.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from common import conditions, labels
from common.api.meta import whole_seconds
from common.api.ray_cluster import RayCluster
from common.api.ray_service import ClusterServiceStatus, RayServiceStatus
from common.ray import serve_writer
from common.runtime.actions import Publish
from common.upgrade import events, gate_record, traffic_record
from common.upgrade import policy as upgrade_policy
from common.upgrade.events import Direction, ReportedSplit, Share, UpgradeReference
from common.upgrade.receipt import Receipt, UpgradeOutcome
from common.upgrade.service_conditions import ConditionType
from common.upgrade.traffic_record import WHOLE
from service_reconciler import recorded_decisions
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import cleanup_schedule
from service_reconciler.promotion import receipt as receipts
from service_reconciler.status import compute
from service_reconciler.status.conditions import is_timed_out


def ended(observed: Observed, status: RayServiceStatus, *, now: datetime) -> Iterator[Publish]:
    """Yield the events about the end of an upgrade that a write of `status` would hide."""
    names_before, names, kind = (
        observed.names,
        Names.from_status(status),
        ConditionType.UPGRADE_ABORTED,
    )
    if is_timed_out(status.conditions):  # No upgrade is tried any more.
        pair = names_before if names_before.pending else Names(pending=names_before.active)
        ready = conditions.find(status.conditions, ConditionType.READY)
        if ready is not None and pair.pending:
            data = events.Failed(
                upgrade=_build_reference(observed, pair), reason=ready.reason, message=ready.message
            )
            yield Publish(data=data, at=now)
        return
    is_over = (
        names_before.active
        and names_before.pending
        and names_before.pending not in {names.active, names.pending}
    )
    if not is_over or any(
        cluster.metadata.name == names_before.pending for cluster in observed.clusters
    ):
        return  # Otherwise `of_status` yields the abort afterwards, from the cluster that remains.
    abort = conditions.find(status.conditions, kind)
    if abort is not None and not recorded_decisions.holds(observed.service, kind):
        data = events.Aborted(
            upgrade=_build_reference(observed, names_before),
            reason=abort.reason,
            message=abort.message,
            over=False,
        )
        yield Publish(data=data, facts=(abort.reason, abort.message), at=now)
    yield _publish_rollback(observed, names_before, status, at=now)


def cut_short(observed: Observed, reason: str, message: str, *, now: datetime) -> Iterator[Publish]:
    """Yield the events about an upgrade that ends because its service is suspended or deleted."""
    yield from steps(observed, now=now)
    names = observed.names
    if names.active and names.pending:
        data = events.Aborted(
            upgrade=_build_reference(observed, names), reason=reason, message=message, over=True
        )
        yield Publish(data=data, facts=(reason,), at=now)


def deleted(observed: Observed, *, now: datetime) -> Iterator[Publish]:
    """Yield the events that must be published before a RayService is deleted."""
    why = "The RayService is deleted, and all its clusters with it."
    yield from cut_short(observed, "ServiceDeleted", why, now=now)
    yield from swept(observed, now=now)


def swept(observed: Observed, *, now: datetime) -> Iterator[Publish]:
    """Yield a completion event for each upgrade whose old cluster is deleted during its drain."""
    for cluster in observed.undeleted:
        if (
            receipt := receipts.build_finished(observed.service, cluster, None, now=now)
        ) is not None:
            yield from completed(observed, receipt)


def drain_started(
    observed: Observed, cluster: RayCluster, lacking: Mapping[str, str], *, now: datetime
) -> Iterator[Publish]:
    """Yield the event about the start of a cluster's drain when its first deadline is written.

    `lacking` are the annotations that are about to be added to the cluster.
    """
    receipt = receipts.parse_record(lacking)
    if (
        cleanup_schedule.due_at(cluster) is not None
        or receipt is None
        or receipt.outcome is not UpgradeOutcome.PROMOTED
    ):
        return
    data = events.DrainStarted(
        upgrade=_build_reference(observed, Names(active=receipt.old, pending=receipt.new)),
        cluster=cluster.metadata.name,
        deletion_delay_seconds=round(cleanup_schedule.delay_of(observed.service).total_seconds()),
        drain_timeout_seconds=round(
            cleanup_schedule.timeout_of(observed.service)[0].total_seconds()
        ),
    )
    yield Publish(data=data, at=now)


def completed(observed: Observed, receipt: Receipt) -> Iterator[Publish]:
    """Yield the event that a promoted upgrade is complete, with its receipt.

    For any other outcome nothing is yielded, because the events about that end were published
    before.
    """
    if receipt.outcome is UpgradeOutcome.PROMOTED:
        upgrade = _build_reference(observed, Names(active=receipt.old, pending=receipt.new))
        yield Publish(data=events.Completed(upgrade=upgrade, receipt=receipt), at=receipt.finished)


def steps(observed: Observed, *, now: datetime) -> Iterator[Publish]:
    """Yield events about traffic-manager's steps that the status does not show yet.

    Changes of weights come before changes of capacities. Traffic-manager takes the next step only
    after the status shows the last one (ADR 6), so no step is missed.
    """
    status, names = observed.service.status, observed.names
    if not (
        observed.is_incremental
        and names.active
        and names.pending
        and Names.from_status(status) == names
    ):
        return
    roles = status.active_service_status, status.pending_service_status
    empty = (ClusterServiceStatus(ray_cluster_name=name) for name in (names.active, names.pending))
    before, after = (
        _build_split(*roles),
        _build_split(*(compute.add_traffic(observed, status, names) for status in empty)),
    )
    between = ReportedSplit(
        old=msgspec.structs.replace(before.old, traffic_percent=after.old.traffic_percent),
        new=msgspec.structs.replace(before.new, traffic_percent=after.new.traffic_percent),
    )
    direction = (
        Direction.BACK
        if recorded_decisions.is_rolling_back(observed.service)
        else Direction.FORWARD
    )
    upgrade, changed_at = _build_reference(observed, names), observed.record.changed_at
    for kind, was, now_is in (
        (events.TrafficShifted, before, between),
        (events.CapacityChanged, between, after),
    ):
        if was != now_is:
            data = kind(upgrade=upgrade, direction=direction, before=was, after=now_is)
            yield Publish(data=data, facts=(changed_at, now_is), at=changed_at or now)


def past_verdicts(observed: Observed) -> Iterator[Publish]:
    """Yield events about gate results of past steps, until the status shows the next weight.

    `steps` yields the events about the moves of traffic that followed these results.
    """
    shown = observed.service.status.pending_service_status.last_traffic_migrated_time
    for step in traffic_record.past_steps(observed.upgrade):
        if shown is None or whole_seconds(step.since) >= shown:
            yield from _publish_verdicts(observed, step)


def present_verdicts(observed: Observed) -> Iterator[Publish]:
    """Yield events about the gate results at the present weight."""
    if (current := traffic_record.gates_of(observed.upgrade)) is not None:
        yield from _publish_verdicts(observed, current)


def _publish_verdicts(
    observed: Observed, step: gate_record.StepVerdicts | gate_record.Current
) -> Iterator[Publish]:
    upgrade = _build_reference(observed, observed.names)
    for index, verdict in (
        (index, verdict)
        for index, verdict in enumerate(step.gates)
        if gate_record.is_verdict(verdict)
    ):
        data = events.GateEvaluated(
            upgrade=upgrade,
            traffic_percent=min(step.weight, WHOLE),
            gate=verdict.gate,
            outcome=verdict.outcome,
            requests=verdict.requests,
            value=verdict.value,
            limit=verdict.limit,
            message=verdict.text,
        )
        yield Publish(
            data=data,
            facts=(step.since, index, verdict.gate, verdict.outcome, verdict.at),
            at=verdict.at,
        )


def of_status(
    observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime
) -> Iterator[Publish]:
    """Yield the events that follow from a status and the existing clusters, in time order.

    `names` are the cluster names in that status. A cluster that is no longer needed and has no
    deletion deadline yet means that its upgrade has just ended.
    """
    at, there = (
        status.last_update_time or now,
        {cluster.metadata.name: cluster for cluster in observed.clusters},
    )
    active = there.get(names.active)
    lost = upgrade_policy.upgraded_from(active)
    if lost and lost not in there:
        pair = Names(active=lost, pending=names.active)
        yield Publish(data=events.Promoted(upgrade=_build_reference(observed, pair)), at=at)
    for cluster in observed.clusters:
        is_needed = cluster.metadata.name in {names.active, names.pending}
        if is_needed or labels.DELETE_AFTER in cluster.metadata.annotations:
            continue
        pair = receipts.origin_of(names, active, cluster)
        if pair is not None and pair.pending == names.active:
            yield Publish(data=events.Promoted(upgrade=_build_reference(observed, pair)), at=at)
        elif pair is not None:
            yield from _publish_conditions(observed, pair, status, ConditionType.UPGRADE_ABORTED)
            yield _publish_rollback(observed, pair, status, at=at)
    if not (names.active and names.pending):
        return
    upgrade, made = _build_reference(observed, names), there.get(names.pending)
    # A replaced cluster that is used again exists already.
    if made is None or lost == names.pending:
        started = events.Started(
            upgrade=upgrade,
            reason=events.Cause.SPEC_CHANGED
            if names.active in there
            else events.Cause.ACTIVE_CLUSTER_GONE,
            strategy=serve_writer.INCREMENTAL if observed.is_incremental else "NewCluster",
            generation=status.observed_generation,
        )
        yield Publish(data=started, at=at)
    if made is not None:
        meta = made.metadata
        data = events.ClusterCreated(upgrade=upgrade, cluster=meta.name, uid=meta.uid)
        yield Publish(data=data, facts=(meta.uid,), at=meta.creation_timestamp or at)
    kinds = (
        ConditionType.UPGRADE_STALLED,
        ConditionType.UPGRADE_PAUSED,
        ConditionType.UPGRADE_ABORTED,
    )
    yield from _publish_conditions(observed, names, status, *kinds)


def _publish_conditions(
    observed: Observed, pair: Names, status: RayServiceStatus, *kinds: ConditionType
) -> Iterator[Publish]:
    upgrade = _build_reference(observed, pair)
    described = (conditions.find(status.conditions, kind) for kind in kinds)
    for condition in filter(None, described):
        when, why, text = condition.last_transition_time, condition.reason, condition.message
        match condition.type, condition.status:
            case ConditionType.UPGRADE_STALLED, "True":
                data = events.Stalled(upgrade=upgrade, reason=why, message=text)
            case ConditionType.UPGRADE_PAUSED, "True":
                data = events.Paused(upgrade=upgrade, reason=why, message=text)
            case ConditionType.UPGRADE_PAUSED, _:
                data = events.Resumed(upgrade=upgrade)
            case ConditionType.UPGRADE_ABORTED, "True":
                data = events.Aborted(upgrade=upgrade, reason=why, message=text, over=False)
            case _:
                continue
        yield Publish(data=data, facts=(when, why, text), at=when)


def _publish_rollback(
    observed: Observed, pair: Names, status: RayServiceStatus, *, at: datetime
) -> Publish:
    """Return the action that publishes the end of an upgrade without a promotion."""
    outcome = receipts.get_failed_outcome(observed, status, pair)
    return Publish(
        data=events.RolledBack(upgrade=_build_reference(observed, pair), outcome=outcome), at=at
    )


def _build_split(old: ClusterServiceStatus, new: ClusterServiceStatus) -> ReportedSplit:
    """Return the weights and capacities of both clusters in a status.

    Without a value, the old cluster has all traffic.
    """
    weight = new.traffic_routed_percent or 0
    rest = WHOLE - weight if old.traffic_routed_percent is None else old.traffic_routed_percent
    return ReportedSplit(
        old=Share(
            capacity_percent=WHOLE if old.target_capacity is None else old.target_capacity,
            traffic_percent=rest,
        ),
        new=Share(capacity_percent=new.target_capacity or 0, traffic_percent=weight),
    )


def _build_reference(observed: Observed, pair: Names) -> UpgradeReference:
    return events.upgrade(observed.service.metadata.uid, pair.active, pair.pending)
