"""Decide what happens to the pending cluster: create, keep, drop, promote or roll back.

The facts for stepwise upgrades are durable: the hashes on the clusters, and the traffic record on
the route with the weights. Each decision ends in one status write, which the API server refuses if
the RayService changed in the meantime. A spec that is reverted in time therefore always wins (spec
rayservice §6.5, §6.6, §8.5, §8.8, §8.10 (G9), §17.6; acceptance 18-28, 36-38, 59-68).
"""

from enum import StrEnum
from typing import Final

import msgspec

from common.errors import message_of
from common.ray import serve_writer
from common.ray.view import SILENT, head_is_ready
from common.upgrade import traffic_record, weighted_route
from common.upgrade.traffic_record import WHOLE, ClusterTraffic, Record
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion.control import Control
from service_reconciler.resources.ray_cluster import Match

_ALL_TRAFFIC: Final = ClusterTraffic(capacity=WHOLE, weight=WHOLE)
_NO_TRAFFIC: Final = ClusterTraffic(capacity=0, weight=0)


class PendingChange(StrEnum):
    """Change of the pending cluster's name in the RayService status."""

    KEEP = "keep"
    NEW = "new"
    DROP = "drop"
    PROMOTE = "promote"
    """The pending cluster becomes the active cluster."""


class RollbackDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The change of the pending cluster, both clusters' names after the change, and the reason."""

    change: PendingChange
    names: Names
    note: str
    rollback: str | None = None
    """Message of condition RollbackInProgress; None without a rollback."""

    @property
    def is_forward(self) -> bool:
        """Whether the clusters keep their roles and no rollback is in progress."""
        return self.change is PendingChange.KEEP and self.rollback is None


def decide(observed: Observed, control: Control) -> RollbackDecision:
    """Return what happens to the pending cluster, or whether one is created."""
    active, pending, rollback = observed.active, observed.pending, None
    if pending is None:
        change, note = _decide_without_pending(observed, control)
    elif active is None or not observed.is_incremental:
        change, note = _decide_at_once(observed, pending, control)
    else:
        change, note, rollback = _decide_in_steps(observed, active, pending, control)
    match change:
        case PendingChange.KEEP:
            names = observed.names
        case PendingChange.NEW:
            returning = observed.returnable
            new = observed.fresh_name if returning is None else returning.metadata.name
            names = Names(active=observed.names.active, pending=new)
        case PendingChange.DROP:
            names = Names(active=observed.names.active)
        case PendingChange.PROMOTE:
            names = Names(active=observed.names.pending)
    return RollbackDecision(change=change, names=names, note=note, rollback=rollback)


def _decide_at_once(
    observed: Observed, pending: ClusterView, control: Control
) -> tuple[PendingChange, str]:
    is_wanted = observed.match(pending) is not Match.DIFFERENT
    # The last cluster that gets requests serves, even if it does not match the spec any more.
    is_left = bool(observed.names.active) and observed.active is None
    if (
        is_left
        and not is_wanted
        and observed.is_incremental
        and observed.requests_from(pending.name) is not None
    ):
        return (
            PendingChange.PROMOTE,
            f"RayCluster {observed.names.active} is gone and the pending cluster gets requests",
        )
    if observed.serving == observed.names.pending:
        return PendingChange.KEEP, "the pending cluster serves already"
    if control.abort is not None:
        return PendingChange.DROP, control.abort.message
    if is_wanted:
        return PendingChange.KEEP, "the pending cluster is what the spec asks for"
    if observed.active is not None and observed.match(observed.active) is not Match.DIFFERENT:
        return PendingChange.DROP, "the spec is the active cluster's again"
    kept = PendingChange.KEEP, "the upgrade strategy allows no further cluster"
    changed = PendingChange.NEW, "the spec changed again before the pending cluster served"
    return changed if replaces_clusters(observed) else kept


def _decide_without_pending(observed: Observed, control: Control) -> tuple[PendingChange, str]:
    """Return the change and its reason while no pending cluster exists.

    If the status names a pending cluster that does not exist, the name stays as long as a new
    cluster is needed.
    """
    names, active = observed.names, observed.active
    created = PendingChange.KEEP, "the pending cluster is to be created"
    if active is None:
        why = "there is no cluster" if not names.active else "the active cluster is gone"
        return created if names.pending else (PendingChange.NEW, why)
    if names.pending:
        dropped = PendingChange.DROP, "no new cluster is needed, and the pending one does not exist"
        return created if _is_new_needed(observed, active, control) else dropped
    if control.abort is not None:
        return PendingChange.KEEP, control.abort.message
    match observed.match(active):
        case Match.FULL:
            return PendingChange.KEEP, "the active cluster is what the spec asks for"
        case Match.APPENDED:
            return PendingChange.KEEP, "worker groups are added to the active cluster"
        case Match.DIFFERENT:
            kept = PendingChange.KEEP, "the cluster spec changed, but the upgrade strategy is None"
            return (
                (PendingChange.NEW, "the cluster spec changed")
                if replaces_clusters(observed)
                else kept
            )


def _is_new_needed(observed: Observed, active: ClusterView, control: Control) -> bool:
    """Return whether the active cluster must be replaced to match the spec, and may be replaced."""
    is_different = observed.match(active) is Match.DIFFERENT
    return control.abort is None and is_different and replaces_clusters(observed)


def _decide_in_steps(
    observed: Observed, active: ClusterView, pending: ClusterView, control: Control
) -> tuple[PendingChange, str, str | None]:
    """Return the change of the pending cluster in a stepwise upgrade, and the reason.

    The third value is the message of a rollback; None without a rollback.
    """
    if control.abort is not None:
        why = "Upgrade aborted, rolling back to original cluster."
    elif observed.match(active) is Match.FULL:
        why = "Goal state reverted to original cluster, rolling back."
    elif observed.match(pending) is Match.DIFFERENT:
        why = "Goal state changed mid-upgrade, rolling back to original cluster."
    elif control.pause is not None:
        return PendingChange.KEEP, control.pause.message, None
    elif _has_moved(observed, active, pending):
        return PendingChange.PROMOTE, "all traffic and all capacity have moved", None
    else:
        return PendingChange.KEEP, "traffic moves to the pending cluster", None
    if not _is_back(observed.record, active, pending):
        return PendingChange.KEEP, why, why
    if _is_new_needed(observed, active, control):
        return (
            PendingChange.NEW,
            "the spec changed again, and all traffic is back on the active cluster",
            None,
        )
    back = "the spec needs no new cluster, and all traffic is back on the active one"
    return PendingChange.DROP, message_of(control.abort) or back, None


def replaces_clusters(observed: Observed) -> bool:
    """Return whether the upgrade strategy allows a new cluster for a changed spec.

    With strategy None only the first cluster is created.
    """
    strategy = observed.service.spec.upgrade_strategy
    if strategy is None or strategy.type is None:
        return observed.config.zero_downtime
    return strategy.type in {"NewCluster", serve_writer.INCREMENTAL}


def _has_moved(observed: Observed, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the pending cluster has all traffic and the active cluster no capacity.

    The weight is read from the route itself.
    """
    clusters = traffic_record.of_route(observed.route).clusters
    old, new = clusters.get(active.name, _ALL_TRAFFIC), clusters.get(pending.name, _NO_TRAFFIC)
    # A cluster that was recreated under its name has no traffic yet.
    if new.uid not in {
        "",
        pending.cluster.metadata.uid,
    }:
        return False
    backend = weighted_route.serve_service(observed.service.metadata.namespace, pending.name)
    weight = traffic_record.weight_of(observed.route, backend)
    return (old.capacity, new.weight, weight) == (0, WHOLE, WHOLE)


def _is_back(record: Record, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the active cluster has all traffic and all capacity again.

    The capacity of a pending cluster that is not ready or does not answer is ignored, because it
    cannot be lowered. Ignoring it is safe. The weights are back already, so no traffic moves. No
    cluster that gets requests is deleted, since `requests_from` counts a route until its Gateway
    has accepted the change.
    """
    old, new = (
        record.clusters.get(active.name, _ALL_TRAFFIC),
        record.clusters.get(pending.name, _NO_TRAFFIC),
    )
    is_dead = not head_is_ready(pending.cluster) or pending.serve.failures >= SILENT
    return (old.capacity, old.weight, new.weight) == (WHOLE, WHOLE, 0) and (
        new.capacity == 0 or is_dead
    )
