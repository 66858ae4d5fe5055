"""Drain and delete clusters that a RayService no longer needs, with Events about each drain.

Before a cluster is deleted, the receipt of its upgrade (a summary) is written.

The deadline of the deletion is an annotation on the unneeded cluster, so it survives a restart. It
counts from the first reconcile after the promotion in which nothing sends requests to the cluster,
and includes some slack, as in KubeRay (spec rayservice §16; acceptance 29, 30).

A cluster drains if it is behind a weighted route or if its pods can be marked as draining. Without
a route, the pods are marked as soon as the cluster is unneeded, so that the proxies in the pods
close connections. After the deadline, the cluster is deleted when no request is in flight, or at
the drain timeout. Each reconcile reads the number of requests in flight again.
"""

from collections.abc import Mapping, Set
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import labels
from common.api.meta import SKEW, rfc3339, whole_seconds
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, RAY_CLUSTER
from common.runtime.actions import (
    Action,
    ActionEvents,
    Annotate,
    Delete,
    EmitEvent,
    EventTemplate,
    KubeEvent,
    Patch,
    Plan,
    earliest,
    normal,
    warning,
)
from common.upgrade import policy as upgrade_policy
from common.upgrade.receipt import Receipt, receipt_of
from common.upgrade.service_conditions import ConditionType
from service_reconciler import events, recorded_decisions, upgrade_events
from service_reconciler.actions import change_metadata
from service_reconciler.observed import (
    DrainingCluster,
    Names,
    Observed,
    drains,
    marks_of,
)
from service_reconciler.promotion import cleanup_schedule
from service_reconciler.promotion import receipt as receipts
from service_reconciler.reasons import EventReason

CLEANUP: Final = "cleanup"
"""Name of the action chain that drains and deletes unneeded clusters, beside the main chain.

A quota may refuse a new cluster until an old cluster is deleted, so a refused creation must not
stop these writes.
"""
STRAY_TRAFFIC_TIMEOUT: Final = timedelta(seconds=30)
"""Time for which an unneeded cluster may receive requests before an Event reports it."""


def plan_drain_cancellation(observed: Observed, names: Names, *, now: datetime) -> list[Action]:
    """Return the actions that end the drain of clusters that are needed again (ADR 44).

    `names` are the active and the pending cluster that the plan writes to the status. Before the
    status names a cluster, its deadline and drain annotations are removed. A deadline that stayed
    would delete the cluster as soon as it is unneeded again. If a replaced cluster becomes the
    pending cluster, the upgrade that replaced it is first recorded as ended.
    """
    names_before, returns = observed.names, observed.returning
    needed = {names_before.active, names_before.pending, names.active, names.pending}
    changes: dict[str, dict[str, str | None]] = {
        cluster.metadata.name: dict.fromkeys(marks_of(cluster))
        for cluster in observed.undeleted
        if cluster.metadata.name in needed
    }
    actions: list[Action] = []
    if returns is not None:
        active, back = returns
        receipt = receipts.build_returned(observed, active.cluster, back.cluster, now=now)
        actions += _plan_receipt(observed, receipt)
        changes[back.name] |= {
            labels.UPGRADE_FROM: active.name,
            labels.UPGRADE_POLICY_RECORD: None,
            receipts.SO_FAR: None,
        }
        changes[active.name] |= {labels.UPGRADE_FROM: None}
    for cluster in (
        cluster for cluster in observed.undeleted if changes.get(cluster.metadata.name)
    ):
        name = cluster.metadata.name
        is_late = returns is None and name in {names_before.active, names_before.pending}
        write = plan_annotation(cluster, "needed", changes[name])
        actions.append(msgspec.structs.replace(write, is_side=is_late))
    for meta in (pod.metadata for view in observed.views for pod in view.pods):
        marks = {labels.DRAINING, labels.DRAIN_REFRESH} & meta.annotations.keys()
        if marks and meta.deletion_timestamp is None:
            note = f"The pod {meta.namespaced_name} is still marked as draining: "
            report = ActionEvents(failure=warning(EventReason.DRAIN_NOT_MARKED, "Drain", note))
            unmarked = dict.fromkeys(sorted(marks))
            actions.append(change_metadata(POD, meta, report, annotations=unmarked))
    return actions


def decide(observed: Observed, named: Set[str] = frozenset(), *, now: datetime) -> Plan[Action]:
    """Give each unneeded cluster a deadline, and delete drained clusters after their deadline.

    `named` are the clusters that the plan writes to the status; they are needed.

    The deadline of a cluster counts from the moment when nothing sends requests to the cluster any
    more, and is removed if requests return. The receipt, a summary of the upgrade, is written
    before the cluster is deleted, so that a restart in between does not lose the receipt.
    """
    kept, marked, marks = list[Action](), list[Action](), list[Action]()
    received, ended = list[Action](), list[Action]()
    deleted: list[RayCluster] = []
    later: list[datetime] = []
    draining_of = {
        draining_cluster.cluster.metadata.uid: draining_cluster
        for draining_cluster in observed.draining
    }
    for cluster in (cluster for cluster in observed.unneeded if cluster.metadata.name not in named):
        sender = observed.requests_from(cluster.metadata.name)
        until = (
            now + cleanup_schedule.RECHECK
            if sender is not None
            else _get_bake_end(observed, cluster, now=now)
        )
        if until is not None:
            kept += (
                _plan_kept_cluster(observed, cluster, sender, now=now) if sender is not None else []
            )
            later.append(until)
            continue
        draining = draining_of.get(cluster.metadata.uid)
        due, lacking = _get_deadline(observed, cluster, draining, now=now)
        if lacking:
            began = (
                _build_started_event(observed, draining, due)
                if draining and labels.DRAINING_SINCE in lacking
                else None
            )
            marked += upgrade_events.drain_started(observed, cluster, lacking, now=now)
            marked.append(plan_annotation(cluster, "old", lacking, success=began))
        requeue_at = (
            max(due, now)
            if lacking
            else _get_requeue_time(observed, cluster, draining, due, now=now)
        )
        if requeue_at is not None:
            marks += _plan_pod_marks(draining, now=now) if draining is not None else []
            later.append(requeue_at)
            continue
        deleted.append(cluster)
        ongoing = None if draining is None else draining.ongoing
        receipt = receipts.build_finished(observed.service, cluster, ongoing, now=now)
        received += [] if receipt is None else _plan_receipt(observed, receipt)
        ended += [EmitEvent(event=_build_ended_event(draining))] if draining is not None else []
    over = _plan_upgrade_end(observed, {cluster.metadata.name for cluster in deleted}, now=now)
    actions = (*kept, *marked, *marks, *received, *map(plan_deletion, deleted), *ended, *over)
    chained = tuple(msgspec.structs.replace(action, chain=CLEANUP) for action in actions)
    return Plan(actions=chained, requeue_at=min(later, default=None))


def _get_bake_end(observed: Observed, cluster: RayCluster, *, now: datetime) -> datetime | None:
    """Return when the bake of the replaced cluster `cluster` ends.

    The bake is the time for which the UpgradePolicy keeps the replaced cluster. None after the
    bake, or if `cluster` is not the replaced cluster.
    """
    since = recorded_decisions.changed_at(observed.service, ConditionType.UPGRADE_IN_PROGRESS)
    # The clock was set back in the meantime.
    if observed.baking is None or since is None or since > now + SKEW:
        return None
    old, length = observed.baking
    return since + length if cluster is old and now < since + length else None


def plan_deletion(cluster: RayCluster, report: EventTemplate = events.CLUSTER_DELETED) -> Delete:
    """Return the action that deletes a cluster; `report` makes the Events about the deletion."""
    meta = cluster.metadata
    return Delete(
        resource=RAY_CLUSTER,
        name=meta.name,
        uid=meta.uid,
        events=report.format(meta.namespaced_name),
    )


def _plan_kept_cluster(
    observed: Observed, cluster: RayCluster, sender: str, *, now: datetime
) -> list[Action]:
    """Return the actions for an unneeded cluster that still receives requests from `sender`.

    The deletion deadline of the cluster is removed. An Event names `sender` if traffic-manager and
    the Gateway should have moved the traffic away by now.
    """
    actions: list[Action] = []
    if marks := marks_of(cluster):
        actions.append(plan_annotation(cluster, "old", dict.fromkeys(marks)))
    changes = (
        observed.record.changed_at,
        recorded_decisions.changed_at(observed.service, ConditionType.UPGRADE_IN_PROGRESS),
    )
    if (
        now - max((action for action in changes if action is not None), default=now)
        >= STRAY_TRAFFIC_TIMEOUT
    ):
        note = (
            f"RayCluster {cluster.metadata.namespaced_name} is not needed any more and is kept: "
            f"it gets requests from {sender}"
        )
        actions.append(EmitEvent(event=warning(EventReason.OLD_CLUSTER_KEPT, "Drain", note)))
    return actions


def _get_deadline(
    observed: Observed, cluster: RayCluster, draining: DrainingCluster | None, *, now: datetime
) -> tuple[datetime, dict[str, str]]:
    """Return the deadline of a cluster, and the annotations that must be added to the cluster.

    The annotations may be the deadline, the start of the drain and the record of the upgrade.
    """
    due, lacking = cleanup_schedule.due_at(cluster), dict[str, str]()
    latest = whole_seconds(
        now + cleanup_schedule.delay_of(observed.service) + cleanup_schedule.ROUNDED_UP
    )
    # Such a late deadline means that the clock was set back or that the delay was shortened.
    if due is None or due > latest + SKEW:
        due = latest
        lacking[labels.DELETE_AFTER] = rfc3339(due)
        record = receipts.build_record(observed, cluster, now=now)
        lacking |= {receipts.SO_FAR: record} if record is not None else {}
    if draining is not None and cleanup_schedule.draining_since(cluster) is None:
        lacking[labels.DRAINING_SINCE] = rfc3339(now)
    return due, lacking


def _get_requeue_time(
    observed: Observed,
    cluster: RayCluster,
    draining: DrainingCluster | None,
    due: datetime,
    *,
    now: datetime,
) -> datetime | None:
    """Return when to reconcile the cluster again; None if it is to be deleted now.

    `due` is the deadline of the cluster; `draining` is None if it does not drain.
    """
    since = cleanup_schedule.draining_since(cluster)
    is_graceful = draining is not None and draining.is_graceful
    refresh = (
        cleanup_schedule.next_refresh(since, now=now) if is_graceful and since is not None else None
    )
    if due > now:
        return earliest(due, refresh)
    if draining is None or since is None:
        return None
    cap = due + cleanup_schedule.timeout_of(observed.service)[0]
    # The user asked for no drain, and the requests in flight cannot be observed.
    if draining.is_silent and not is_graceful:
        cap = min(cap, due + cleanup_schedule.SETTLING)
    fresh_at = since + (
        cleanup_schedule.SETTLING_HA_PROXY if draining.has_ha_proxy else cleanup_schedule.SETTLING
    )
    recheck_at = cleanup_schedule.recheck_at(draining.ongoing, fresh_at=fresh_at, cap=cap, now=now)
    return None if recheck_at is None else earliest(recheck_at, refresh)


def _plan_pod_marks(draining: DrainingCluster, *, now: datetime) -> list[Action]:
    """Return the actions that mark pods of a cluster as draining, or that refresh these marks."""
    actions: list[Action] = []
    since = cleanup_schedule.draining_since(draining.cluster)
    refreshes = cleanup_schedule.refreshes(since, now=now) if since is not None else 0
    mark = {labels.DRAINING: "true"} | ({labels.DRAIN_REFRESH: str(refreshes)} if refreshes else {})
    for meta in (pod.metadata for pod in draining.pods if drains(pod)):
        if meta.deletion_timestamp is None and not mark.items() <= meta.annotations.items():
            note = (
                f"The pod {meta.namespaced_name} is not marked as draining, so its proxy keeps "
                "connections open: "
            )
            report = ActionEvents(failure=warning(EventReason.DRAIN_NOT_MARKED, "Drain", note))
            actions.append(change_metadata(POD, meta, report, annotations=mark))
    return actions


def _plan_receipt(observed: Observed, receipt: Receipt) -> list[Action]:
    """Return the actions that publish an upgrade's end and write its receipt to the RayService.

    The receipt is not written if the RayService already has it or a later receipt. Two unneeded
    clusters that cannot be deleted would otherwise replace each other's receipt endlessly.
    """
    published: list[Action] = [*upgrade_events.completed(observed, receipt)]
    recorded = receipt_of(observed.service)
    if recorded == receipt or (
        recorded is not None and (recorded.started, recorded.new) > (receipt.started, receipt.new)
    ):
        return published
    failed = f"The receipt of the upgrade from {receipt.old} to {receipt.new} is not written: "
    report = ActionEvents(
        success=normal(EventReason.UPGRADE_RECEIPT, "Upgrade", str(receipt)),
        failure=warning(EventReason.RECEIPT_NOT_WRITTEN, "Upgrade", failed),
    )
    value = msgspec.json.encode(receipt).decode()
    return [
        *published,
        Annotate(name=labels.UPGRADE_RECEIPT, value=value, events=report, is_side=True),
    ]


def _plan_upgrade_end(observed: Observed, deleted: set[str], *, now: datetime) -> list[Action]:
    """Return the actions that end an upgrade whose old cluster is being deleted or already gone.

    `deleted` are the names of the clusters that this plan deletes. If the old cluster vanished
    before raybus deleted it, the receipt (summary of the upgrade) has only the facts that are still
    known.
    """
    active = observed.active.cluster if observed.active is not None else None
    old = upgrade_policy.upgraded_from(active)
    is_there = any(cluster.metadata.name == old for cluster in observed.clusters)
    if active is None or not old or (is_there and old not in deleted):
        return []
    over = plan_annotation(active, "active", {labels.UPGRADE_FROM: None})
    if is_there:
        return [over]
    receipt = receipts.build_after_loss(observed, active, old, now=now)
    return [*_plan_receipt(observed, receipt), over]


def plan_annotation(
    cluster: RayCluster,
    role: str,
    annotations: Mapping[str, str | None],
    *,
    success: KubeEvent | None = None,
) -> Patch:
    """Return the action that changes a cluster's annotations.

    An annotation with the value None is removed. If the write fails, the Event calls the cluster by
    its `role`, such as "old".
    """
    failure = events.CLUSTER_UPDATED.format(role, cluster.metadata.namespaced_name).failure
    report = ActionEvents(success=success, failure=failure)
    return change_metadata(RAY_CLUSTER, cluster.metadata, report, annotations=annotations)


def _build_started_event(observed: Observed, draining: DrainingCluster, due: datetime) -> KubeEvent:
    """Return the Event for the start of a drain, which tells when the cluster will be deleted."""
    timeout, odd = cleanup_schedule.timeout_of(observed.service)
    graceful, routed = (
        "its proxies close connections between requests",
        "no route sends it requests any more",
    )
    end = (
        f"after {rfc3339(due)} once nothing is in flight, at {rfc3339(due + timeout)} at the latest"
    )
    where, how = (
        draining.cluster.metadata.namespaced_name,
        graceful if draining.is_graceful else routed,
    )
    text = f"RayCluster {where} drains: {how}. It is deleted {end}"
    if odd is not None:
        return warning(EventReason.DRAIN_STARTED, "Drain", f"{text}; {odd}, so 60 s hold")
    return normal(EventReason.DRAIN_STARTED, "Drain", text)


def _build_ended_event(draining: DrainingCluster) -> KubeEvent:
    where = draining.cluster.metadata.namespaced_name
    is_quiet = draining.ongoing == 0 or (draining.is_silent and not draining.is_graceful)
    note = f"RayCluster {where} was deleted with {cleanup_schedule.in_flight(draining.ongoing)}"
    return (normal if is_quiet else warning)(EventReason.DRAIN_ENDED, "Drain", note)
