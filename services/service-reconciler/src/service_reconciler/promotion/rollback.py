"""Upgrades in steps: which way the traffic goes, when the pending cluster is promoted, and when a rollback is over.

The facts are durable: the hashes on the clusters, and the record on the route that carries the weights. Both decisions end in
one status write, refused when the RayService changed since, so a spec that is reverted in time always wins (spec rayservice
§8.5, §8.8, §8.10; acceptance 59-68).
"""

from enum import StrEnum
from typing import Final

import msgspec

from common import names as naming
from common.ray import serve_writer
from common.ray.view import SILENT, head_is_ready
from common.upgrade import traffic_record
from common.upgrade.traffic_record import WHOLE, Record, Share
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion.control import Control, is_goal
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


def decide(observed: Observed, active: ClusterView, pending: ClusterView, control: Control) -> Decision:
    """Return where an upgrade in steps goes now, and why."""
    if control.abort is not None:
        why = "Upgrade aborted, rolling back to original cluster."
    elif is_goal(observed, active, control):
        why = "Goal state reverted to original cluster, rolling back."
    elif observed.match(pending) is Match.DIFFERENT:
        why = "Goal state changed mid-upgrade, rolling back to original cluster."
    elif control.pause is not None:
        return decision(observed, Step.KEEP, control.pause.message)
    elif _has_moved(observed, active, pending):
        return decision(observed, Step.PROMOTE, "all traffic and all capacity have moved")
    else:
        return decision(observed, Step.KEEP, "traffic moves to the pending cluster")
    if not _is_back(observed.record, active, pending):
        return decision(observed, Step.KEEP, why, rollback=why)
    is_wanted = control.abort is None and observed.match(active) is Match.DIFFERENT and replaces_clusters(observed)
    return decision(observed, Step.NEW if is_wanted else Step.DROP, why)


def decision(observed: Observed, step: Step, note: str, *, rollback: str | None = None) -> Decision:
    """Return a decision with the names that hold from then on."""
    active, pending = observed.names.active, observed.names.pending
    match step:
        case Step.KEEP:
            names = observed.names
        case Step.NEW:
            names = Names(active=active, pending=observed.returnable or observed.fresh_name)
        case Step.DROP:
            names = Names(active=active)
        case Step.PROMOTE:
            names = Names(active=pending)
    return Decision(step=step, names=names, note=note, rollback=rollback)


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
    if new.uid not in {"", pending.cluster.metadata.uid}:  # it was made again under its name, and has nothing yet
        return False
    weight = traffic_record.weight_of(observed.route, naming.serve_service(pending.name))
    return (old.capacity, new.weight, weight) == (0, WHOLE, WHOLE)


def _is_back(record: Record, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the active cluster has everything; the share of a dead cluster does not count."""
    old, new = record.clusters.get(active.name, _ACTIVE), record.clusters.get(pending.name, _PENDING)
    is_dead = not head_is_ready(pending.cluster) or pending.serve.failures >= SILENT
    return (old.capacity, old.weight, new.weight) == (WHOLE, WHOLE, 0) and (new.capacity == 0 or is_dead)
