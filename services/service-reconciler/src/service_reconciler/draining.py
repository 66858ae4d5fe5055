"""What is written about unneeded clusters: deadlines, marks on pods that drain, the upgrade's receipt, and Events."""

from datetime import datetime

import msgspec

from common import labels
from common.api.core import Pod
from common.api.event import Event, normal, warning
from common.api.meta import rfc3339
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, RAY_CLUSTER
from common.runtime.actions import Action, ActionEvents, Annotate, Delete, EmitEvent, Patch
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
        actions += upgrade_events.drain_started(observed, mark, now=now)
        meta = {"resourceVersion": mark.cluster.metadata.resource_version, "annotations": mark.annotations}
        report = events.old_cluster_marked(_place(mark.cluster))
        if mark.draining is not None:
            report = msgspec.structs.replace(report, success=began(observed, mark.draining, mark.due))
        actions.append(_marked(mark.cluster, {"metadata": meta}, report))
    unmarked = (*cleanup.delete, *(each.cluster for each in cleanup.kept))
    actions += marks(observed, without=frozenset(each.metadata.uid for each in unmarked), now=now)
    for receipt in cleanup.receipts:
        actions += _received(observed, receipt)
    actions += [deletion(each) for each in cleanup.delete]
    actions += [EmitEvent(event=ended(each)) for each in cleanup.drained]
    active = observed.active.cluster if observed.active is not None else None
    if active is not None and receipts.upgraded_from(active) in {each.metadata.name for each in cleanup.delete}:
        actions.append(_upgrade_over(active))
    return [*actions, *_without_the_old(observed, active, now=now)]


def _without_the_old(observed: Observed, active: RayCluster | None, *, now: datetime) -> list[Action]:
    """End an upgrade with an old cluster that is gone before raybus deleted it, or before it could write that it did."""
    old = receipts.upgraded_from(active)
    if active is None or not old or any(each.metadata.name == old for each in observed.clusters):
        return []
    found = receipts.lost(observed, active, old, now=now)
    published = upgrade_events.completed(observed, found)
    actions = published if receipts.is_written(observed, found) else _received(observed, found)
    return [*actions, _upgrade_over(active)]


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
    written = Annotate(name=labels.UPGRADE_RECEIPT, value=value, events=report, is_side=True)
    return [*published, written]


def _upgrade_over(cluster: RayCluster) -> Patch:
    """Return the patch that ends the upgrade to a cluster."""
    meta = {"resourceVersion": cluster.metadata.resource_version, "annotations": {labels.UPGRADE_FROM: None}}
    return _marked(cluster, {"metadata": meta}, events.cluster_update_failed("active", _place(cluster)))


def _marked(cluster: RayCluster, patch: Body, report: ActionEvents) -> Patch:
    return Patch(resource=RAY_CLUSTER, name=cluster.metadata.name, patch=patch, events=report, is_side=True)


def deletion(cluster: RayCluster, *, suspending: bool = False) -> Delete:
    """Return the deletion of a cluster."""
    meta = cluster.metadata
    report = events.cluster_deleted(f"{meta.namespace}/{meta.name}", suspending=suspending)
    return Delete(resource=RAY_CLUSTER, name=meta.name, uid=meta.uid, events=report)


def _kept(kept: Kept) -> list[Action]:
    """Stop the clock of a cluster that gets requests, and report it to the user if that should have ended."""
    meta = kept.cluster.metadata
    actions: list[Action] = []
    held = [name for name in (labels.DELETE_AFTER, labels.DRAINING_SINCE) if name in meta.annotations]
    if held:
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": dict.fromkeys(held)}}
        actions.append(_marked(kept.cluster, patch, events.old_cluster_marked(_place(kept.cluster))))
    if kept.is_late:
        note = f"RayCluster {meta.namespace}/{meta.name} is not needed any more and is kept: it gets requests from {kept.sender}"
        actions.append(EmitEvent(event=warning(EventReason.OLD_CLUSTER_KEPT, "Drain", note)))
    return actions


def marks(observed: Observed, *, without: frozenset[str], now: datetime) -> list[Action]:
    """Return the marks of pods that can drain and lack theirs or its refresh; the clusters `without`, by uid, get none."""
    actions: list[Action] = []
    for draining in observed.draining:
        if draining.cluster.metadata.uid in without:
            continue
        mark = _mark(draining.cluster, now=now)
        actions += [_pod_marked(pod, mark) for pod in draining.pods if _lacks(pod, mark)]
    return actions


def _lacks(pod: Pod, mark: dict[str, str]) -> bool:
    meta = pod.metadata
    return drains(pod) and meta.deletion_timestamp is None and not mark.items() <= meta.annotations.items()


def _mark(cluster: RayCluster, *, now: datetime) -> dict[str, str]:
    since = dangling.draining_since(cluster)
    refreshes = dangling.refreshes(since, now=now) if since is not None else 0
    return {labels.DRAINING: "true"} | ({labels.DRAIN_REFRESH: str(refreshes)} if refreshes else {})


def _pod_marked(pod: Pod, mark: dict[str, str]) -> Patch:
    meta = pod.metadata
    return Patch(
        resource=POD,
        name=meta.name,
        patch={"metadata": {"resourceVersion": meta.resource_version, "annotations": mark}},
        events=events.pod_drain_mark(f"{meta.namespace}/{meta.name}"),
        is_side=True,
    )


def began(observed: Observed, draining: DrainingCluster, due: datetime) -> Event:
    """Return the event of a cluster that begins to drain, with the time and condition of its end."""
    cap = due + dangling.timeout_of(observed.service)
    how = (
        "its proxies close connections between requests"
        if draining.is_graceful
        else "no route sends it requests any more"
    )
    end = f"after {rfc3339(due)} once nothing is in flight, at {rfc3339(cap)} at the latest"
    text = f"RayCluster {_where(draining)} drains: {how}. It is deleted {end}"
    odd = dangling.odd_timeout(observed.service)
    if odd is not None:
        return warning(EventReason.DRAIN_STARTED, "Drain", f"{text}; {odd}, so 60 s hold")
    return normal(EventReason.DRAIN_STARTED, "Drain", text)


def ended(draining: DrainingCluster) -> Event:
    """Return the event of a drain that ended."""
    note = f"RayCluster {_where(draining)} was deleted with {dangling.in_flight(draining.ongoing)}"
    is_quiet = draining.ongoing == 0 or (draining.is_silent and not draining.is_graceful)
    event = normal if is_quiet else warning
    return event(EventReason.DRAIN_ENDED, "Drain", note)


def _where(draining: DrainingCluster) -> str:
    return _place(draining.cluster)


def _place(cluster: RayCluster) -> str:
    return f"{cluster.metadata.namespace}/{cluster.metadata.name}"
