"""Times at which an unneeded cluster is drained and deleted (spec rayservice §16)."""

from datetime import datetime, timedelta
from typing import Final

from common import annotation_record, durations, labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import DEFAULT_DELETION_DELAY, RayService

DELETION_SLACK: Final = 2
"""Seconds added to the deletion delay of an old cluster.

KubeRay starts the delay only at the reconcile after the promotion. Clients that poll once a second
rely on that extra time (§16.4).
"""
RECHECK: Final = timedelta(seconds=1)
ROUNDED_UP: Final = timedelta(microseconds=999_999)
"""Added to a time before its fraction of a second is dropped, so that the time is rounded up."""
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
"""Default of the drain timeout: time after the deletion deadline in which requests may finish."""
SETTLING: Final = timedelta(seconds=15)
"""Time after the start of a drain from which a reported count of 0 requests can be trusted.

Ray exports its counts every 10 s, and a mark takes up to 2 s to take effect.
"""
SETTLING_HA_PROXY: Final = timedelta(seconds=25)
"""Like `SETTLING`, for a count from HAProxy.

Ray polls HAProxy every 10 s, and exports the count up to 10 s later.
"""
REFRESHES: Final = (timedelta(seconds=3), timedelta(seconds=10), timedelta(seconds=30))
"""Times after the start of a drain at which the pods with the draining mark are changed again.

The kubelet updates the annotation volume when the pod changes, sometimes from an older copy of the
pod: 13 of 900 changes were late on a busy node. The kubelet updates the volume again at the next
change, or after 60 to 90 s, which is later than the drain timeout.
"""


def recheck_at(
    ongoing: int | None, *, fresh_at: datetime, cap: datetime, now: datetime
) -> datetime | None:
    """Return when to count the requests in flight again; None if the cluster is to be deleted.

    `ongoing` is the last count, None if it is unknown. A count of 0 may be outdated until
    `fresh_at`. The cluster is deleted at `cap` in any case.
    """
    if now >= cap or (ongoing == 0 and now >= fresh_at):
        return None
    return min(cap, fresh_at if ongoing == 0 else now + RECHECK)


def in_flight(ongoing: int | None) -> str:
    """Return the number of requests in flight as text for users."""
    if ongoing is None:
        return "an unknown number of requests in flight"
    return f"{ongoing} request{'' if ongoing == 1 else 's'} in flight"


def delay_of(service: RayService) -> timedelta:
    """Return the time from the end of traffic to the deletion deadline, with `DELETION_SLACK`."""
    # raw_spec: an invalid spec must not keep unneeded clusters alive
    given = service.raw_spec.get("rayClusterDeletionDelaySeconds")
    seconds = given if isinstance(given, int) and given >= 0 else DEFAULT_DELETION_DELAY
    return timedelta(seconds=seconds + DELETION_SLACK)


def timeout_of(service: RayService) -> tuple[timedelta, str | None]:
    """Return the drain timeout. For an invalid value, return the default and what is wrong."""
    text = service.metadata.annotations.get(labels.DRAIN_TIMEOUT)
    length = durations.parse_or_seconds(text or "")
    if text is None or (length is not None and length >= timedelta(0)):
        return DEFAULT_TIMEOUT if length is None else length, None
    odd = (
        f'{labels.DRAIN_TIMEOUT} "{text}" is neither a duration such as 90s nor a number of seconds'
    )
    return DEFAULT_TIMEOUT, odd


def due_at(cluster: RayCluster) -> datetime | None:
    """Return the deletion deadline on a cluster; None if it is missing or unreadable."""
    return annotation_record.moment(cluster.metadata.annotations.get(labels.DELETE_AFTER))


def draining_since(cluster: RayCluster) -> datetime | None:
    """Return when a cluster's drain began; None if the annotation is missing or unreadable."""
    return annotation_record.moment(cluster.metadata.annotations.get(labels.DRAINING_SINCE))


def refreshes(begun: datetime, *, now: datetime) -> int:
    """Return how many times the draining mark should have been rewritten by now.

    The drain began at `begun`.
    """
    return sum(begun + refresh <= now for refresh in REFRESHES)


def next_refresh(begun: datetime, *, now: datetime) -> datetime | None:
    """Return when the draining mark on the pods is rewritten next; None if never again."""
    return next((begun + refresh for refresh in REFRESHES if begun + refresh > now), None)
