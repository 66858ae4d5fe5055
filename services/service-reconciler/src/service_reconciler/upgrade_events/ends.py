"""Ends of upgrades that leave no trace, published before the write or the deletion that makes them past."""

from collections.abc import Iterator
from datetime import datetime

from common import conditions
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayServiceStatus
from common.upgrade.events import Aborted, Completed, DrainStarted, Event, Failed
from common.upgrade.receipt import Outcome, Receipt
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import dangling, drain, receipt
from service_reconciler.reasons import ConditionType
from service_reconciler.upgrade_events import build, current

SUSPENDED = "ServiceSuspended"
DELETED = "ServiceDeleted"


def unmade(observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime) -> Iterator[Event]:
    """Yield the abort of an upgrade without its cluster; with it, `current` yields the abort afterwards."""
    held, kind = observed.names, ConditionType.UPGRADE_ABORTED
    is_over = held.active and held.pending and held.pending not in {names.active, names.pending}
    if not is_over or any(each.metadata.name == held.pending for each in observed.clusters):
        return
    abort = conditions.find(status.conditions, kind)
    if abort is not None and not conditions.is_true(observed.service.status.conditions, kind):
        upgrade = build.upgrade(observed, held)
        data = Aborted(upgrade=upgrade, reason=abort.reason, message=abort.message, over=False)
        yield build.event(observed, data, abort.reason, abort.message, at=now)
    yield current.rolled_back(observed, held, status, at=now)


def failed(observed: Observed, status: RayServiceStatus, *, now: datetime) -> Iterator[Event]:
    """Yield that a service did not become ready in time, and that nothing is tried any more."""
    held, ready = observed.names, conditions.find(status.conditions, ConditionType.READY)
    pair = held if held.pending else Names(pending=held.active)
    if ready is None or not pair.pending:
        return
    data = Failed(upgrade=build.upgrade(observed, pair), reason=ready.reason, message=ready.message)
    yield build.event(observed, data, at=now)


def cut_short(observed: Observed, reason: str, message: str, *, now: datetime) -> Iterator[Event]:
    """Yield the abort of the upgrade that is on when its service ends."""
    if observed.names.active and observed.names.pending:
        upgrade = build.upgrade(observed, observed.names)
        yield build.event(observed, Aborted(upgrade=upgrade, reason=reason, message=message, over=True), reason, at=now)


def drained(observed: Observed, mark: dangling.Mark, *, now: datetime) -> Iterator[Event]:
    """Yield that the old cluster begins to drain, when its first deadline is written on it."""
    held = receipt.begun(mark.annotations)
    if dangling.due_at(mark.cluster) is None and held is not None and held.outcome is Outcome.PROMOTED:
        data = DrainStarted(
            upgrade=build.upgrade(observed, Names(active=held.old, pending=held.new)),
            cluster=mark.cluster.metadata.name,
            deletion_delay_seconds=round(dangling.delay_of(observed.service).total_seconds()),
            drain_timeout_seconds=round(drain.timeout_of(observed.service).total_seconds()),
        )
        yield build.event(observed, data, at=now)


def completed(observed: Observed, found: Receipt) -> Iterator[Event]:
    """Yield that an upgrade is over, from its receipt; one that was rolled back was over before."""
    if found.outcome is Outcome.PROMOTED:
        upgrade = build.upgrade(observed, Names(active=found.old, pending=found.new))
        yield build.event(observed, Completed(upgrade=upgrade, receipt=found), at=found.finished)


def completed_by_deletion(observed: Observed, clusters: list[RayCluster], *, now: datetime) -> Iterator[Event]:
    """Yield the ends of upgrades with old clusters that still drain, when they are deleted with their service."""
    for cluster in clusters:
        found = receipt.finished(cluster, None, now=now)
        if found is not None and not receipt.is_written(observed, found):
            yield from completed(observed, found)
