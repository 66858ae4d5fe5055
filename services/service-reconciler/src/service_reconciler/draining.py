"""What is written about unneeded clusters: deadlines, marks on pods that drain, the upgrade's receipt, and Events."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from common import labels
from common.api.event import Event, normal, warning
from common.api.meta import rfc3339
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, RAY_CLUSTER
from common.runtime.actions import Action, ActionEvents, Annotate, Delete, EmitEvent, Patch, Report
from common.upgrade.receipt import Receipt
from service_reconciler import events, upgrade_events
from service_reconciler.observed import DrainingCluster, Observed, drains
from service_reconciler.promotion import dangling
from service_reconciler.promotion import receipt as receipts
from service_reconciler.promotion.dangling import Cleanup, Kept
from service_reconciler.reasons import EventReason


def writes(observed: Observed, cleanup: Cleanup, *, now: datetime) -> list[Action]:
    """Return the writes of a clean-up; a receipt comes before its cluster goes, for a restart in between must not lose it."""
    actions: list[Action] = [each for kept in cleanup.kept for each in _kept(kept)]
    for mark in cleanup.mark:
        report = events.CLUSTER_UPDATED.failure("old", mark.cluster.metadata.namespaced_name)
        if mark.draining is not None:
            report = msgspec.structs.replace(report, success=_began(observed, mark.draining, mark.due))
        actions += upgrade_events.drain_started(observed, mark, now=now)
        actions.append(_annotated(mark.cluster, mark.annotations, report))
    unmarked = (*cleanup.delete, *(each.cluster for each in cleanup.kept))
    actions += _pod_marks(observed, without={each.metadata.uid for each in unmarked}, now=now)
    for receipt in cleanup.receipts:
        actions += _received(observed, receipt)
    actions += [deletion(each) for each in cleanup.delete]
    actions += [EmitEvent(event=_ended(each)) for each in cleanup.drained]
    if observed.active is not None:
        actions += _upgrade_over(observed, observed.active.cluster, cleanup, now=now)
    return actions


def _upgrade_over(observed: Observed, active: RayCluster, cleanup: Cleanup, *, now: datetime) -> list[Action]:
    """End the upgrade to a cluster: its old one is deleted, or is gone before raybus deleted it or could write that it did."""
    old, actions = receipts.upgraded_from(active), list[Action]()
    report = events.CLUSTER_UPDATED.failure("active", active.metadata.namespaced_name)
    over = _annotated(active, {labels.UPGRADE_FROM: None}, report)
    if old in {each.metadata.name for each in cleanup.delete}:
        actions.append(over)
    if old and all(each.metadata.name != old for each in observed.clusters):
        found = receipts.lost(observed, active, old, now=now)
        is_written = receipts.is_written(observed, found)
        actions += upgrade_events.completed(observed, found) if is_written else _received(observed, found)
        actions.append(over)
    return actions


def _received(observed: Observed, receipt: Receipt) -> list[Action]:
    """Publish the end of an upgrade, and write its receipt on the RayService unless that has a later one."""
    published = upgrade_events.completed(observed, receipt)
    if receipts.is_overtaken(observed, receipt):
        return published
    failed = f"The receipt of the upgrade from {receipt.old} to {receipt.new} is not written: "
    report = ActionEvents(
        success=normal(EventReason.UPGRADE_RECEIPT, "Upgrade", str(receipt)),
        failure=warning(EventReason.RECEIPT_NOT_WRITTEN, "Upgrade", failed),
    )
    value = msgspec.json.encode(receipt).decode()
    return [*published, Annotate(name=labels.UPGRADE_RECEIPT, value=value, events=report, is_side=True)]


def _annotated(cluster: RayCluster, annotations: Mapping[str, str | None], report: ActionEvents) -> Patch:
    meta = cluster.metadata
    patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
    return Patch(resource=RAY_CLUSTER, name=meta.name, patch=patch, events=report, is_side=True)


def deletion(cluster: RayCluster, report: Report = events.CLUSTER_DELETED) -> Delete:
    """Return the deletion of a cluster."""
    meta = cluster.metadata
    return Delete(resource=RAY_CLUSTER, name=meta.name, uid=meta.uid, events=report.of(meta.namespaced_name))


def _kept(kept: Kept) -> Iterator[Action]:
    """Stop the clock of a cluster that gets requests, and report it to the user if that should have ended."""
    meta = kept.cluster.metadata
    held = [name for name in (labels.DELETE_AFTER, labels.DRAINING_SINCE) if name in meta.annotations]
    if held:
        report = events.CLUSTER_UPDATED.failure("old", meta.namespaced_name)
        yield _annotated(kept.cluster, dict.fromkeys(held), report)
    if kept.is_late:
        note = (
            f"RayCluster {meta.namespaced_name} is not needed any more and is kept: it gets requests from {kept.sender}"
        )
        yield EmitEvent(event=warning(EventReason.OLD_CLUSTER_KEPT, "Drain", note))


def _pod_marks(observed: Observed, *, without: set[str], now: datetime) -> Iterator[Action]:
    """Yield the marks of pods that can drain and lack theirs or its refresh; the clusters `without`, by uid, get none."""
    for draining in observed.draining:
        if draining.cluster.metadata.uid in without:
            continue
        since = dangling.draining_since(draining.cluster)
        refreshes = dangling.refreshes(since, now=now) if since is not None else 0
        mark = {labels.DRAINING: "true"} | ({labels.DRAIN_REFRESH: str(refreshes)} if refreshes else {})
        for pod in draining.pods:
            meta = pod.metadata
            if drains(pod) and meta.deletion_timestamp is None and not mark.items() <= meta.annotations.items():
                patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": mark}}
                report = events.pod_not_marked(meta.namespaced_name)
                yield Patch(resource=POD, name=meta.name, patch=patch, events=report, is_side=True)


def _began(observed: Observed, draining: DrainingCluster, due: datetime) -> Event:
    """Return the event of a cluster that begins to drain, with the time and condition of its end."""
    cap, odd = due + dangling.timeout_of(observed.service), dangling.odd_timeout(observed.service)
    graceful, routed = "its proxies close connections between requests", "no route sends it requests any more"
    end = f"after {rfc3339(due)} once nothing is in flight, at {rfc3339(cap)} at the latest"
    where, how = draining.cluster.metadata.namespaced_name, graceful if draining.is_graceful else routed
    text = f"RayCluster {where} drains: {how}. It is deleted {end}"
    if odd is not None:
        return warning(EventReason.DRAIN_STARTED, "Drain", f"{text}; {odd}, so 60 s hold")
    return normal(EventReason.DRAIN_STARTED, "Drain", text)


def _ended(draining: DrainingCluster) -> Event:
    """Return the event of a drain that ended."""
    where = draining.cluster.metadata.namespaced_name
    is_quiet = draining.ongoing == 0 or (draining.is_silent and not draining.is_graceful)
    note = f"RayCluster {where} was deleted with {dangling.in_flight(draining.ongoing)}"
    return (normal if is_quiet else warning)(EventReason.DRAIN_ENDED, "Drain", note)
