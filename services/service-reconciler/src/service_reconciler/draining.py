"""What is written about unneeded clusters: deadlines, marks on pods that drain, the upgrade's receipt, and Events that tell."""

from datetime import datetime

import msgspec

from common import labels
from common.api.event import Event, normal, warning
from common.api.meta import rfc3339
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, RAY_CLUSTER
from common.upgrade_receipt import Receipt
from service_reconciler import announcements
from service_reconciler.actions import Action, Annotate, Change, Delete, Publish, Tell, Told
from service_reconciler.events import ends
from service_reconciler.observed import Leaving, Observed, drains
from service_reconciler.promotion import drain, origin
from service_reconciler.promotion import receipt as receipts
from service_reconciler.promotion.dangling import Cleanup, Kept
from service_reconciler.reasons import EventReason
from service_reconciler.resources.ray_cluster import DELETE_AFTER


def writes(observed: Observed, cleanup: Cleanup, *, now: datetime) -> list[Action]:
    """Return the writes of a clean-up; a receipt comes before its cluster goes, for a restart in between must not lose it."""
    actions: list[Action] = [each for kept in cleanup.kept for each in _kept(kept)]
    for mark in cleanup.mark:
        actions += [Publish(event=each) for each in ends.drained(observed, mark, now=now)]
        meta = {"resourceVersion": mark.cluster.metadata.resource_version, "annotations": mark.annotations}
        told = announcements.old_cluster_marked(_place(mark.cluster))
        if mark.leaving is not None:
            told = msgspec.structs.replace(told, done=began(observed, mark.leaving, mark.due))
        actions.append(_marked(mark.cluster, {"metadata": meta}, told))
    unmarked = (*cleanup.delete, *(each.cluster for each in cleanup.kept))
    actions += marks(observed, without=frozenset(each.metadata.uid for each in unmarked))
    for receipt in cleanup.receipts:
        actions += _received(observed, receipt)
    actions += [deletion(each) for each in cleanup.delete]
    actions += [Tell(event=ended(each)) for each in cleanup.drained]
    active = observed.active.cluster if observed.active is not None else None
    if active is not None and origin.from_of(active) in {each.metadata.name for each in cleanup.delete}:
        actions.append(_settled(active))
    return [*actions, *_without_the_old(observed, active, now=now)]


def _without_the_old(observed: Observed, active: RayCluster | None, *, now: datetime) -> list[Action]:
    """End an upgrade whose old cluster is gone before we deleted it, or before we could say that we did."""
    old = origin.from_of(active) if active is not None else ""
    if active is None or not old or any(each.metadata.name == old for each in observed.clusters):
        return []
    found = receipts.lost(observed, active, old, now=now)
    told = [Publish(event=each) for each in ends.completed(observed, found)]
    news = told if receipts.is_written(observed, found) else _received(observed, found)
    return [*news, _settled(active)]


def _received(observed: Observed, receipt: Receipt) -> list[Action]:
    """Tell what an upgrade came to, and write it down."""
    failed = f"The receipt of the upgrade from {receipt.old} to {receipt.new} is not written: "
    told = Told(
        done=normal(EventReason.UPGRADE_RECEIPT, "Upgrade", str(receipt)),
        failed=warning(EventReason.RECEIPT_NOT_WRITTEN, "Upgrade", failed),
    )
    value = msgspec.json.encode(receipt).decode()
    written = Annotate(name=labels.UPGRADE_RECEIPT, value=value, told=told, is_side=True)
    return [*(Publish(event=each) for each in ends.completed(observed, receipt)), written]


def _settled(cluster: RayCluster) -> Change:
    """Return what says that the upgrade to a cluster is over."""
    meta = {"resourceVersion": cluster.metadata.resource_version, "annotations": {labels.UPGRADE_FROM: None}}
    return _marked(cluster, {"metadata": meta}, announcements.cluster_update_failed("active", _place(cluster)))


def _marked(cluster: RayCluster, patch: Body, told: Told) -> Change:
    return Change(resource=RAY_CLUSTER, name=cluster.metadata.name, patch=patch, told=told, is_side=True)


def deletion(cluster: RayCluster, *, suspending: bool = False) -> Delete:
    """Return the deletion of a cluster."""
    meta = cluster.metadata
    told = announcements.cluster_deleted(f"{meta.namespace}/{meta.name}", suspending=suspending)
    return Delete(resource=RAY_CLUSTER, name=meta.name, uid=meta.uid, told=told)


def _kept(kept: Kept) -> list[Action]:
    """Stop the clock of a cluster that gets requests, and tell the user if that should have ended."""
    meta = kept.cluster.metadata
    actions: list[Action] = []
    held = [name for name in (DELETE_AFTER, labels.DRAINING_SINCE) if name in meta.annotations]
    if held:
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": dict.fromkeys(held)}}
        actions.append(_marked(kept.cluster, patch, announcements.old_cluster_marked(_place(kept.cluster))))
    if kept.is_late:
        note = f"RayCluster {meta.namespace}/{meta.name} is not needed any more and is kept: it gets requests from {kept.sender}"
        actions.append(Tell(event=warning(EventReason.OLD_CLUSTER_KEPT, "Drain", note)))
    return actions


def marks(observed: Observed, *, without: frozenset[str]) -> list[Action]:
    """Return the marks of pods that can drain and are not told to yet; the clusters `without`, by uid, get none."""
    return [
        Change(
            resource=POD,
            name=pod.metadata.name,
            patch={
                "metadata": {
                    "resourceVersion": pod.metadata.resource_version,
                    "annotations": {labels.DRAINING: "true"},
                }
            },
            told=announcements.pod_drain_mark(f"{pod.metadata.namespace}/{pod.metadata.name}"),
            is_side=True,
        )
        for leaving in observed.leaving
        if leaving.cluster.metadata.uid not in without
        for pod in leaving.pods
        if drains(pod)
        and pod.metadata.annotations.get(labels.DRAINING) != "true"
        and pod.metadata.deletion_timestamp is None
    ]


def began(observed: Observed, leaving: Leaving, due: datetime) -> Event:
    """Tell that a cluster drains, and what ends that."""
    cap = due + drain.timeout_of(observed.service)
    how = "its proxies close connections between requests" if leaving.is_told else "no route sends it requests any more"
    end = f"after {rfc3339(due)} once nothing is in flight, at {rfc3339(cap)} at the latest"
    text = f"RayCluster {_where(leaving)} drains: {how}. It is deleted {end}"
    odd = drain.odd_timeout(observed.service)
    if odd is not None:
        return warning(EventReason.DRAIN_STARTED, "Drain", f"{text}; {odd}, so 60 s hold")
    return normal(EventReason.DRAIN_STARTED, "Drain", text)


def ended(leaving: Leaving) -> Event:
    """Tell how a drain ended."""
    note = f"RayCluster {_where(leaving)} was deleted with {drain.in_flight(leaving.ongoing)}"
    is_quiet = leaving.ongoing == 0 or (leaving.is_silent and not leaving.is_told)
    tell = normal if is_quiet else warning
    return tell(EventReason.DRAIN_ENDED, "Drain", note)


def _where(leaving: Leaving) -> str:
    return _place(leaving.cluster)


def _place(cluster: RayCluster) -> str:
    return f"{cluster.metadata.namespace}/{cluster.metadata.name}"
