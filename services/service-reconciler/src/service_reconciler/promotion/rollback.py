"""What happens to the pending cluster: whether a new one is needed, whether it has a purpose still, and when it is promoted.

For upgrades in steps the facts are durable: the hashes on the clusters, and the record on the route that carries the weights. Each
decision ends in one status write, refused when the RayService changed since, so a spec that is reverted in time always wins (spec
rayservice §6.5, §6.6, §8.5, §8.8, §8.10 (G9), §17.6; acceptance 18-28, 36-38, 59-68).
"""

from enum import StrEnum
from typing import Final

import msgspec

from common.errors import message_of
from common.ray import serve_writer
from common.ray.view import SILENT, head_is_ready
from common.upgrade import traffic_record, weighted_route
from common.upgrade.traffic_record import WHOLE, Record, Share
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion.control import Control
from service_reconciler.resources.ray_cluster import Match

_ACTIVE: Final = Share(capacity=WHOLE, weight=WHOLE)
_PENDING: Final = Share(capacity=0, weight=0)


class Step(StrEnum):
    """What happens to the pending name."""

    KEEP = "keep"
    NEW = "new"
    DROP = "drop"
    PROMOTE = "promote"
    """The pending cluster becomes the active one."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the pending name, the names that hold from now on, and why."""

    step: Step
    names: Names
    note: str
    rollback: str | None = None
    """The message of the condition RollbackInProgress; None while nothing is rolled back."""

    @property
    def is_forward(self) -> bool:
        """Return whether the upgrade that is on, if any, goes on."""
        return self.step is Step.KEEP and self.rollback is None


def decide(observed: Observed, control: Control) -> Decision:
    """Decide whether a new cluster is prepared, the pending one is dropped or promoted, or all stays."""
    active, pending, rollback = observed.active, observed.pending, None
    if pending is None:
        step, note = _without_pending(observed, control)
    elif active is None or not observed.is_incremental:
        step, note = _at_once(observed, pending, control)
    else:
        step, note, rollback = _in_steps(observed, active, pending, control)
    match step:
        case Step.KEEP:
            names = observed.names
        case Step.NEW:
            returning = observed.returnable
            new = observed.fresh_name if returning is None else returning.metadata.name
            names = Names(active=observed.names.active, pending=new)
        case Step.DROP:
            names = Names(active=observed.names.active)
        case Step.PROMOTE:
            names = Names(active=observed.names.pending)
    return Decision(step=step, names=names, note=note, rollback=rollback)


def _at_once(observed: Observed, pending: ClusterView, control: Control) -> tuple[Step, str]:
    is_wanted = observed.match(pending) is not Match.DIFFERENT
    # the last cluster that gets requests serves whatever the spec asks for by now (design rule 8)
    is_left = bool(observed.names.active) and observed.active is None
    if (
        is_left
        and not is_wanted
        and observed.is_incremental
        and observed.requests_from(pending.name) is not None
    ):
        return (
            Step.PROMOTE,
            f"RayCluster {observed.names.active} is gone and the pending cluster gets requests",
        )
    if observed.serving == observed.names.pending:
        return Step.KEEP, "the pending cluster serves already"
    if control.abort is not None:
        return Step.DROP, control.abort.message
    if is_wanted:
        return Step.KEEP, "the pending cluster is what the spec asks for"
    if observed.active is not None and observed.match(observed.active) is not Match.DIFFERENT:
        return Step.DROP, "the spec is the active cluster's again"
    kept = Step.KEEP, "the upgrade strategy allows no further cluster"
    changed = Step.NEW, "the spec changed again before the pending cluster served"
    return changed if replaces_clusters(observed) else kept


def _without_pending(observed: Observed, control: Control) -> tuple[Step, str]:
    """Decide without a pending cluster; a name without a cluster lasts while a new one is needed."""
    names, active = observed.names, observed.active
    created = Step.KEEP, "the pending cluster is to be created"
    if active is None:
        why = "there is no cluster" if not names.active else "the active cluster is gone"
        return created if names.pending else (Step.NEW, why)
    if names.pending:
        dropped = Step.DROP, "no new cluster is needed, and the pending one does not exist"
        return created if _is_new_needed(observed, active, control) else dropped
    if control.abort is not None:
        return Step.KEEP, control.abort.message
    match observed.match(active):
        case Match.FULL:
            return Step.KEEP, "the active cluster is what the spec asks for"
        case Match.APPENDED:
            return Step.KEEP, "worker groups are added to the active cluster"
        case Match.DIFFERENT:
            kept = Step.KEEP, "the cluster spec changed, but the upgrade strategy is None"
            return (Step.NEW, "the cluster spec changed") if replaces_clusters(observed) else kept


def _is_new_needed(observed: Observed, active: ClusterView, control: Control) -> bool:
    """Return whether the spec needs a cluster in place of the active one, and may have it."""
    is_different = observed.match(active) is Match.DIFFERENT
    return control.abort is None and is_different and replaces_clusters(observed)


def _in_steps(
    observed: Observed, active: ClusterView, pending: ClusterView, control: Control
) -> tuple[Step, str, str | None]:
    """Return where an upgrade in steps goes now, why, and why it rolls back, if it does."""
    if control.abort is not None:
        why = "Upgrade aborted, rolling back to original cluster."
    elif observed.match(active) is Match.FULL:
        why = "Goal state reverted to original cluster, rolling back."
    elif observed.match(pending) is Match.DIFFERENT:
        why = "Goal state changed mid-upgrade, rolling back to original cluster."
    elif control.pause is not None:
        return Step.KEEP, control.pause.message, None
    elif _has_moved(observed, active, pending):
        return Step.PROMOTE, "all traffic and all capacity have moved", None
    else:
        return Step.KEEP, "traffic moves to the pending cluster", None
    if not _is_back(observed.record, active, pending):
        return Step.KEEP, why, why
    if _is_new_needed(observed, active, control):
        return (
            Step.NEW,
            "the spec changed again, and all traffic is back on the active cluster",
            None,
        )
    back = "the spec needs no new cluster, and all traffic is back on the active one"
    return Step.DROP, message_of(control.abort) or back, None


def replaces_clusters(observed: Observed) -> bool:
    """Return whether a changed spec may have a new cluster; the strategy None has its first cluster only."""
    strategy = observed.service.spec.upgrade_strategy
    if strategy is None or strategy.type is None:
        return observed.config.zero_downtime
    return strategy.type in {"NewCluster", serve_writer.INCREMENTAL}


def _has_moved(observed: Observed, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the route itself gives the pending cluster everything, and the active one has no capacity left."""
    held = traffic_record.of_route(observed.route).clusters
    old, new = held.get(active.name, _ACTIVE), held.get(pending.name, _PENDING)
    if new.uid not in {
        "",
        pending.cluster.metadata.uid,
    }:  # it was made again under its name, and has nothing yet
        return False
    backend = weighted_route.serve_service(observed.service.metadata.namespace, pending.name)
    weight = traffic_record.weight_of(observed.route, backend)
    return (old.capacity, new.weight, weight) == (0, WHOLE, WHOLE)


def _is_back(record: Record, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the active cluster has everything.

    The capacity of a pending cluster that is not ready or does not answer is not waited for: nobody
    could lower it. Silence moves no traffic here, since the weights have to be back already. It
    deletes nothing that gets requests either: `requests_from` counts a route until its Gateway has
    accepted it, and holds the deletion back.
    """
    old, new = (
        record.clusters.get(active.name, _ACTIVE),
        record.clusters.get(pending.name, _PENDING),
    )
    is_dead = not head_is_ready(pending.cluster) or pending.serve.failures >= SILENT
    return (old.capacity, old.weight, new.weight) == (WHOLE, WHOLE, 0) and (
        new.capacity == 0 or is_dead
    )
