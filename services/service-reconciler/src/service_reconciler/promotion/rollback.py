"""Upgrades in steps: which way the traffic goes, when the pending cluster is promoted, and when a rollback is over.

The facts are durable: the hashes on the clusters, and the record on the route that carries the weights. Both decisions end in
one status write, refused when the RayService changed since, so a spec that is reverted in time always wins (spec rayservice
§8.5, §8.8, §8.10; acceptance 59-68).
"""

from enum import StrEnum
from typing import Final

import msgspec

from common import names
from common.ray.view import head_is_ready
from common.upgrade import traffic_record
from common.upgrade.traffic_record import WHOLE, Record, Share
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion.control import Control, is_goal
from service_reconciler.resources.ray_cluster import Match

REVERTED: Final = "Goal state reverted to original cluster, rolling back."
ABORTED: Final = "Upgrade aborted, rolling back to original cluster."
THIRD: Final = "Goal state changed mid-upgrade, rolling back to original cluster."
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


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Where an upgrade goes, and why."""

    course: Course
    note: str


def decide(observed: Observed, active: ClusterView, pending: ClusterView, control: Control) -> Verdict:
    """Return where an upgrade in steps goes now."""
    if (why := _turned(observed, active, pending, control)) is not None:
        course = Course.DROPPED if _is_back(observed.record, active, pending) else Course.BACK
        return Verdict(course=course, note=why)
    if control.pause is not None:
        return Verdict(course=Course.FORWARD, note=control.pause.message)
    if _is_over(observed, active, pending):
        return Verdict(course=Course.PROMOTED, note="all traffic and all capacity have moved")
    return Verdict(course=Course.FORWARD, note="traffic moves to the pending cluster")


def _turned(observed: Observed, active: ClusterView, pending: ClusterView, control: Control) -> str | None:
    """Return why the traffic rolls back to the active cluster, None when it goes forward."""
    if control.abort is not None:
        return ABORTED
    if is_goal(observed, active, control):
        return REVERTED
    return THIRD if observed.match(pending) is Match.DIFFERENT else None


def _is_over(observed: Observed, active: ClusterView, pending: ClusterView) -> bool:
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
    if (old.capacity, old.weight, new.weight) != (WHOLE, WHOLE, 0):
        return False
    is_dead = not head_is_ready(pending.cluster) or pending.serve.failures >= SILENT_AFTER
    return new.capacity == 0 or is_dead
