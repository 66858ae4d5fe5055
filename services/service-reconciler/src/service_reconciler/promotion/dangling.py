"""When unneeded clusters drain and are deleted.

The deadline is an annotation on the cluster, so a restart does not forget it. It counts from the first reconcile after promotion at which nothing
sends the cluster requests any more, with the slack that KubeRay has (spec rayservice §16; acceptance 29, 30). Behind a weighted route, or if its
pods can be marked, a cluster drains: without a route its pods are marked as soon as it is unneeded, so that their proxies close connections. After
the usual delay it is deleted once nothing is in flight, or at a cap. What is in flight is read anew at each reconcile.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import annotation_record, durations, labels
from common.api.meta import SKEW, rfc3339, whole_seconds
from common.api.ray_cluster import RayCluster
from common.api.ray_service import DEFAULT_DELETION_DELAY, RayService
from common.runtime.actions import earliest
from common.upgrade.receipt import Receipt
from service_reconciler import decided
from service_reconciler.observed import DrainingCluster, Observed
from service_reconciler.promotion import receipt
from service_reconciler.reasons import ConditionType
from service_reconciler.settings import DELETION_SLACK

RECHECK: Final = timedelta(seconds=1)
ROUNDED_UP: Final = timedelta(microseconds=999_999)
"""Times are written in whole seconds, and the slack must not be lost to that."""
LATE: Final = timedelta(seconds=30)
"""How long an unneeded cluster may get requests before the user gets an Event."""
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
"""How long after the usual delay requests may still be worked on."""
SETTLING: Final = timedelta(seconds=15)
"""Ray exports its numbers every 10 s, and a mark takes up to 2 s to take effect: before that, "nothing" may be old."""
SETTLING_HA_PROXY: Final = timedelta(seconds=25)
"""The same where HAProxy is the proxy: Ray asks it every 10 s, and exports its answer as late again."""
REFRESHES: Final = (timedelta(seconds=3), timedelta(seconds=10), timedelta(seconds=30))
"""When the pods of a draining cluster are changed again after their mark.

A kubelet renders a pod's annotations into its volume when the pod changes, sometimes from an older copy of the pod: 13 of 900 changes
were late on a busy node. It does so again at the next change, or after 60 to 90 s, which is later than the cap.
"""


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
        mark += [written] if written is not None else []
        again = max(written.due, now) if written is not None else _requeue_at(observed, cluster, draining, now=now)
        if again is not None:
            later.append(again)
            continue
        delete.append(cluster)
        drained += [draining] if draining is not None else []
        found = receipt.finished(cluster, draining.ongoing if draining is not None else None, now=now)
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
    begins = draining is not None and draining_since(cluster) is None
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
    observed: Observed, cluster: RayCluster, draining: DrainingCluster | None, *, now: datetime
) -> datetime | None:
    """Return when to reconcile a marked cluster again, None when it is deleted now."""
    due, since = due_at(cluster), draining_since(cluster)
    is_graceful = draining is not None and draining.is_graceful
    refresh = next_refresh(since, now=now) if is_graceful and since is not None else None
    if due is None or due > now:
        return earliest(due, refresh)
    if draining is None or since is None:
        return None
    cap = due + timeout_of(observed.service)
    if draining.is_silent and not is_graceful:  # the user asked for no drain, and nothing can be observed
        cap = min(cap, due + SETTLING)
    fresh_at = since + (SETTLING_HA_PROXY if draining.has_ha_proxy else SETTLING)
    again = recheck_at(draining.ongoing, fresh_at=fresh_at, cap=cap, now=now)
    return None if again is None else earliest(again, refresh)


def recheck_at(ongoing: int | None, *, fresh_at: datetime, cap: datetime, now: datetime) -> datetime | None:
    """Return when to count the requests in flight of a cluster past its delay again, None when it goes now.

    `ongoing` is None when their number is unknown; that there are none may be an old count until `fresh_at`.
    """
    if now >= cap or (ongoing == 0 and now >= fresh_at):
        return None
    return min(cap, fresh_at if ongoing == 0 else now + RECHECK)


def _is_late(observed: Observed, *, now: datetime) -> bool:
    """Return whether nothing has changed for so long that requests to an unneeded cluster are a fault."""
    moments = (observed.record.changed_at, decided.changed_at(observed.service, ConditionType.UPGRADE_IN_PROGRESS))
    return now - max((each for each in moments if each is not None), default=now) >= LATE


def in_flight(ongoing: int | None) -> str:
    """Return how many requests are in flight, as a text."""
    if ongoing is None:
        return "an unknown number of requests in flight"
    return f"{ongoing} request{'' if ongoing == 1 else 's'} in flight"


def delay_of(service: RayService) -> timedelta:
    """Return how long an unneeded cluster lives on."""
    given = service.raw_spec.get("rayClusterDeletionDelaySeconds")  # raw: an odd spec must not keep clusters alive
    seconds = given if isinstance(given, int) and given >= 0 else DEFAULT_DELETION_DELAY
    return timedelta(seconds=seconds + DELETION_SLACK)


def timeout_of(service: RayService) -> timedelta:
    """Return how long after the delay a cluster may drain; what cannot be read counts as absent."""
    given = _given_timeout(service)
    return DEFAULT_TIMEOUT if given is None else given


def odd_timeout(service: RayService) -> str | None:
    """Return what is wrong with the time-out that the user set."""
    text = service.metadata.annotations.get(labels.DRAIN_TIMEOUT)
    if text is None or _given_timeout(service) is not None:
        return None
    return f'{labels.DRAIN_TIMEOUT} "{text}" is neither a duration such as 90s nor a number of seconds'


def _given_timeout(service: RayService) -> timedelta | None:
    length = durations.parse_or_seconds(service.metadata.annotations.get(labels.DRAIN_TIMEOUT, ""))
    return length if length is not None and length >= timedelta(0) else None


def due_at(cluster: RayCluster) -> datetime | None:
    """Return the deadline on a cluster, None when it has none that can be read."""
    return annotation_record.moment(cluster.metadata.annotations.get(labels.DELETE_AFTER))


def draining_since(cluster: RayCluster) -> datetime | None:
    """Return since when a cluster drains, None when it does not."""
    return annotation_record.moment(cluster.metadata.annotations.get(labels.DRAINING_SINCE))


def refreshes(begun: datetime, *, now: datetime) -> int:
    """Return how many times the pods of a cluster that drains since `begun` are due to have been changed after their mark."""
    return sum(begun + each <= now for each in REFRESHES)


def next_refresh(begun: datetime, *, now: datetime) -> datetime | None:
    """Return when they are changed next, None when no more."""
    return next((begun + each for each in REFRESHES if begun + each > now), None)
