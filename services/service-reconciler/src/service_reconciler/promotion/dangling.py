"""The times of an unneeded cluster's end: its deadline, its drain, and how long either lasts (spec rayservice §16)."""

from datetime import datetime, timedelta
from typing import Final

from common import annotation_record, durations, labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import DEFAULT_DELETION_DELAY, RayService

DELETION_SLACK: Final = 2
"""Seconds added to the delay: KubeRay counts from the pass after promotion, and its users poll once a second (§16.4)."""
RECHECK: Final = timedelta(seconds=1)
ROUNDED_UP: Final = timedelta(microseconds=999_999)
"""Times are written in whole seconds, and the slack must not be lost to that."""
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


def recheck_at(
    ongoing: int | None, *, fresh_at: datetime, cap: datetime, now: datetime
) -> datetime | None:
    """Return when to count the requests in flight of a cluster past its delay again, None when it goes now.

    `ongoing` is None when their number is unknown; that there are none may be an old count until `fresh_at`.
    """
    if now >= cap or (ongoing == 0 and now >= fresh_at):
        return None
    return min(cap, fresh_at if ongoing == 0 else now + RECHECK)


def in_flight(ongoing: int | None) -> str:
    """Return how many requests are in flight, as a text."""
    if ongoing is None:
        return "an unknown number of requests in flight"
    return f"{ongoing} request{'' if ongoing == 1 else 's'} in flight"


def delay_of(service: RayService) -> timedelta:
    """Return how long an unneeded cluster lives on."""
    given = service.raw_spec.get(
        "rayClusterDeletionDelaySeconds"
    )  # raw: an odd spec must not keep clusters alive
    seconds = given if isinstance(given, int) and given >= 0 else DEFAULT_DELETION_DELAY
    return timedelta(seconds=seconds + DELETION_SLACK)


def timeout_of(service: RayService) -> tuple[timedelta, str | None]:
    """Return how long after the delay a cluster may drain, and what is wrong with the user's time-out if another one holds."""
    text = service.metadata.annotations.get(labels.DRAIN_TIMEOUT)
    length = durations.parse_or_seconds(text or "")
    if text is None or (length is not None and length >= timedelta(0)):
        return DEFAULT_TIMEOUT if length is None else length, None
    odd = (
        f'{labels.DRAIN_TIMEOUT} "{text}" is neither a duration such as 90s nor a number of seconds'
    )
    return DEFAULT_TIMEOUT, odd


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
