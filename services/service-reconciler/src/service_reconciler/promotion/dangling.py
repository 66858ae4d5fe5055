"""When unneeded clusters are deleted.

The deadline is an annotation on the cluster, so a restart does not forget it. It counts from the first reconcile after promotion at which nothing
sends the cluster requests any more, with the slack that KubeRay has (spec rayservice §16; acceptance 29, 30).
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import annotation_record, labels
from common.api.meta import SKEW, rfc3339, whole_seconds
from common.api.ray_cluster import RayCluster
from common.api.ray_service import DEFAULT_DELETION_DELAY, RayService
from common.runtime.actions import earliest
from common.upgrade.receipt import Receipt
from service_reconciler import decided
from service_reconciler.config import DELETION_SLACK
from service_reconciler.observed import DrainingCluster, Observed
from service_reconciler.promotion import drain, receipt
from service_reconciler.reasons import ConditionType

RECHECK: Final = timedelta(seconds=1)
ROUNDED_UP: Final = timedelta(microseconds=999_999)
"""Times are written in whole seconds, and the slack must not be lost to that."""
LATE: Final = timedelta(seconds=30)
"""How long an unneeded cluster may get requests before the user gets an Event."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What is written on a cluster that has become unneeded."""

    cluster: RayCluster
    due: datetime
    annotations: dict[str, str]
    draining: DrainingCluster | None = None
    """The cluster once more, if it begins to drain."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that is neither active nor pending and still gets requests: no clock runs for it."""

    cluster: RayCluster
    sender: str
    """What sends it requests."""
    is_late: bool
    """Whether traffic-manager and the Gateway should have ended that by now."""


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about unneeded clusters now."""

    kept: tuple[Kept, ...] = ()
    mark: tuple[Mark, ...] = ()
    """Clusters that get a deadline."""
    drained: tuple[DrainingCluster, ...] = ()
    """Those of the deleted ones that drained before."""
    delete: tuple[RayCluster, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    """The receipts of the upgrades that the deleted ones belonged to, unless they are written already."""
    requeue_at: datetime | None = None


def decide(observed: Observed, *, now: datetime) -> Cleanup:
    """Give each unneeded cluster a deadline, and delete those past their deadline, once they have drained.

    The clock of a cluster starts when nothing sends it requests any more; requests that come back stop it.
    """
    kept: list[Kept] = []
    mark: list[Mark] = []
    delete: list[RayCluster] = []
    drained: list[DrainingCluster] = []
    receipts: list[Receipt] = []
    later: list[datetime] = []
    for cluster in observed.unneeded:
        if cluster.metadata.deletion_timestamp is not None:
            continue
        if (sender := observed.requests_from(cluster.metadata.name)) is not None:
            kept.append(Kept(cluster=cluster, sender=sender, is_late=_is_late(observed, now=now)))
            later.append(now + RECHECK)
            continue
        draining = next((each for each in observed.draining if each.cluster.metadata.uid == cluster.metadata.uid), None)
        written = _mark(observed, cluster, draining, now=now)
        if written is not None:
            mark.append(written)
        again = _requeue_at(observed, cluster, draining, written, now=now)
        if again is not None:
            later.append(again)
            continue
        delete.append(cluster)
        drained += [draining] if draining is not None else []
        found = receipt.finished(cluster, draining, now=now)
        receipts += [found] if found is not None and not receipt.is_written(observed, found) else []
    return Cleanup(
        kept=tuple(kept),
        mark=tuple(mark),
        delete=tuple(delete),
        drained=tuple(drained),
        receipts=tuple(receipts),
        requeue_at=min(later, default=None),
    )


def _mark(observed: Observed, cluster: RayCluster, draining: DrainingCluster | None, *, now: datetime) -> Mark | None:
    """Return what the cluster lacks of its deadline and of the moment that its drain began."""
    due, annotations = due_at(cluster), dict[str, str]()
    begins = draining is not None and drain.since(cluster) is None
    latest = whole_seconds(now + delay_of(observed.service) + ROUNDED_UP)
    if due is None or due > latest + SKEW:  # later by more: the clock was set back since, or the delay is shorter now
        due = latest
        annotations[labels.DELETE_AFTER] = rfc3339(due)
        record = receipt.so_far(observed, cluster, now=now)
        annotations |= {receipt.SO_FAR: record} if record is not None else {}
    if begins:
        annotations[labels.DRAINING_SINCE] = rfc3339(now)
    if not annotations:
        return None
    return Mark(cluster=cluster, due=due, annotations=annotations, draining=draining if begins else None)


def _requeue_at(
    observed: Observed, cluster: RayCluster, draining: DrainingCluster | None, written: Mark | None, *, now: datetime
) -> datetime | None:
    """Return when to reconcile a cluster again, None when it is deleted now."""
    if written is not None:
        return max(written.due, now)
    due, since = due_at(cluster), drain.since(cluster)
    is_graceful = draining is not None and draining.is_graceful
    refresh = drain.next_refresh(since, now=now) if is_graceful and since is not None else None
    if due is None or due > now:
        return earliest(due, refresh)
    if draining is None or since is None:
        return None
    cap = due + drain.timeout_of(observed.service)
    if draining.is_silent and not is_graceful:  # the user asked for no drain, and nothing can be observed
        cap = min(cap, due + drain.SETTLING)
    settling = drain.SETTLING_HA_PROXY if draining.has_ha_proxy else drain.SETTLING
    verdict = drain.decide(draining.ongoing, since=since, cap=cap, now=now, settling=settling)
    return None if verdict.deletes else earliest(verdict.requeue_at, refresh)


def _is_late(observed: Observed, *, now: datetime) -> bool:
    """Return whether nothing has changed for so long that requests to an unneeded cluster are a fault."""
    moments = (observed.record.changed_at, decided.changed_at(observed.service, ConditionType.UPGRADE_IN_PROGRESS))
    return now - max((each for each in moments if each is not None), default=now) >= LATE


def delay_of(service: RayService) -> timedelta:
    """Return how long an unneeded cluster lives on."""
    given = service.raw_spec.get("rayClusterDeletionDelaySeconds")  # raw: an odd spec must not keep clusters alive
    seconds = given if isinstance(given, int) and given >= 0 else DEFAULT_DELETION_DELAY
    return timedelta(seconds=seconds + DELETION_SLACK)


def due_at(cluster: RayCluster) -> datetime | None:
    """Return the deadline on a cluster, None when it has none that can be read."""
    return annotation_record.moment(cluster.metadata.annotations.get(labels.DELETE_AFTER))
