"""When a cluster that was served from until now may go: behind a weighted route, or if its pods can be marked as draining.

Where there is no route its pods are marked as soon as it is unneeded, so that their proxies close connections. After the usual
delay it is deleted once nothing is in flight, or at a cap. The durable state is on the cluster itself: since when it drains, and
its deadline; what is in flight is read anew at each reconcile.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import annotation_record, durations, labels
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService

DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
"""How long after the usual delay requests may still be worked on."""
SETTLING: Final = timedelta(seconds=15)
"""Ray exports its numbers every 10 s, and a mark takes up to 2 s to take effect: before that, "nothing" may be old."""
SETTLING_HA_PROXY: Final = timedelta(seconds=25)
"""The same where HAProxy is the proxy: Ray asks it every 10 s, and exports its answer as late again."""
RECHECK: Final = timedelta(seconds=1)
REFRESHES: Final = (timedelta(seconds=3), timedelta(seconds=10), timedelta(seconds=30))
"""When the pods of a draining cluster are changed again after their mark.

A kubelet renders a pod's annotations into its volume when the pod changes, sometimes from an older copy of the pod: 13 of 900 changes
were late on a busy node. It does so again at the next change, or after 60 to 90 s, which is later than the cap.
"""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster goes now, why, and if not, when to reconcile again."""

    deletes: bool
    reason: str
    requeue_at: datetime | None = None


def decide(
    ongoing: int | None, *, since: datetime, cap: datetime, now: datetime, settling: timedelta = SETTLING
) -> Verdict:
    """Judge a cluster past its delay; `ongoing` is None when it is unknown how many requests are in flight."""
    if ongoing == 0 and now >= since + settling:
        return Verdict(deletes=True, reason="nothing is in flight")
    if now >= cap:
        return Verdict(deletes=True, reason=f"the drain time-out is over with {in_flight(ongoing)}")
    if ongoing == 0:
        return Verdict(deletes=False, reason="the count may be old", requeue_at=min(cap, since + settling))
    return Verdict(deletes=False, reason=in_flight(ongoing), requeue_at=min(cap, now + RECHECK))


def in_flight(ongoing: int | None) -> str:
    """Return how many requests are in flight, as a text."""
    match ongoing:
        case None:
            return "an unknown number of requests in flight"
        case 1:
            return "1 request in flight"
        case _:
            return f"{ongoing} requests in flight"


def timeout_of(service: RayService) -> timedelta:
    """Return how long after the delay a cluster may drain; what cannot be read counts as absent."""
    given = _given(service)
    return DEFAULT_TIMEOUT if given is None else given


def odd_timeout(service: RayService) -> str | None:
    """Return what is wrong with the time-out that the user set."""
    text = service.metadata.annotations.get(labels.DRAIN_TIMEOUT)
    if text is None or _given(service) is not None:
        return None
    return f'{labels.DRAIN_TIMEOUT} "{text}" is neither a duration such as 90s nor a number of seconds'


def since(cluster: RayCluster) -> datetime | None:
    """Return since when a cluster drains, None when it does not."""
    return annotation_record.moment(cluster.metadata.annotations.get(labels.DRAINING_SINCE))


def refreshes(begun: datetime, *, now: datetime) -> int:
    """Return how many times the pods of a cluster that drains since `begun` are due to have been changed after their mark."""
    return sum(begun + each <= now for each in REFRESHES)


def next_refresh(begun: datetime, *, now: datetime) -> datetime | None:
    """Return when they are changed next, None when no more."""
    return next((begun + each for each in REFRESHES if begun + each > now), None)


def _given(service: RayService) -> timedelta | None:
    length = durations.parse_or_seconds(service.metadata.annotations.get(labels.DRAIN_TIMEOUT, ""))
    return length if length is not None and length >= timedelta(0) else None
