"""Upgrades in steps: which way the traffic goes, when the pending cluster is promoted, and when a rollback is over.

The facts are durable: the hashes on the clusters, and the record on the route that carries the weights. Both decisions end in
one status write, refused when the RayService changed since, so a spec that is reverted in time always wins (spec rayservice
§8.5, §8.8, §8.10; acceptance 59-68).
"""

from enum import StrEnum
from typing import Final

from common import names
from common.ray.view import head_is_ready
from common.upgrade import traffic_record
from common.upgrade.traffic_record import WHOLE, Record, Share
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion.control import Control, is_goal
from service_reconciler.resources.ray_cluster import Match

SILENT_AFTER: Final = 3
"""Failed polls in a row after which no plan waits for a dashboard to take a capacity."""
_ACTIVE: Final = Share(capacity=WHOLE, weight=WHOLE)
_PENDING: Final = Share(capacity=0, weight=0)


class Course(StrEnum):
    """Where an upgrade goes."""

    FORWARD = "forward"
    BACK = "back"
    PROMOTED = "promoted"
    """Everything has moved: the pending cluster becomes the active one."""
    DROPPED = "dropped"
    """Everything is back: the pending cluster is not needed any more."""


def decide(observed: Observed, active: ClusterView, pending: ClusterView, control: Control) -> tuple[Course, str]:
    """Return where an upgrade in steps goes now, and why."""
    if control.abort is not None:
        why = "Upgrade aborted, rolling back to original cluster."
    elif is_goal(observed, active, control):
        why = "Goal state reverted to original cluster, rolling back."
    elif observed.match(pending) is Match.DIFFERENT:
        why = "Goal state changed mid-upgrade, rolling back to original cluster."
    elif control.pause is not None:
        return Course.FORWARD, control.pause.message
    elif _has_moved(observed, active, pending):
        return Course.PROMOTED, "all traffic and all capacity have moved"
    else:
        return Course.FORWARD, "traffic moves to the pending cluster"
    return (Course.DROPPED if _is_back(observed.record, active, pending) else Course.BACK), why


def _has_moved(observed: Observed, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the route itself gives the pending cluster everything, and the active one has no capacity left."""
    held = traffic_record.of_route(observed.route).clusters
    old, new = held.get(active.name, _ACTIVE), held.get(pending.name, _PENDING)
    if new.uid not in {"", pending.cluster.metadata.uid}:  # it was made again under its name, and has nothing yet
        return False
    weight = traffic_record.weight_of(observed.route, names.serve_service(pending.name))
    return (old.capacity, new.weight, weight) == (0, WHOLE, WHOLE)


def _is_back(record: Record, active: ClusterView, pending: ClusterView) -> bool:
    """Return whether the active cluster has everything; the share of a dead cluster does not count."""
    old, new = record.clusters.get(active.name, _ACTIVE), record.clusters.get(pending.name, _PENDING)
    is_dead = not head_is_ready(pending.cluster) or pending.serve.failures >= SILENT_AFTER
    return (old.capacity, old.weight, new.weight) == (WHOLE, WHOLE, 0) and (new.capacity == 0 or is_dead)
