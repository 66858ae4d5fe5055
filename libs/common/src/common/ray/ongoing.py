"""Requests in flight at a node's Serve proxy, from the metrics that Ray exports for the node.

Serve's REST API does not report it. Names checked against Ray 2.60: `ray_serve_num_ongoing_http_requests` and its gRPC sibling.
A proxy sets that number when a request begins or ends, and Ray drops a number that was not set for 20 s. So a proxy without the line had
no request for a while, or holds long streams alone; their replicas report them all the time.

Where HAProxy is the proxy, that line counts the requests of HAProxy's newest process. A draining process continues with older
requests and reports none of them, but the replicas that work on them do.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

import msgspec

from common.api.core import Pod
from common.ray import exposition

PROXIES: Final = (b"ray_serve_num_ongoing_http_requests", b"ray_serve_num_ongoing_grpc_requests")
REPLICAS: Final = b"ray_serve_replica_processing_queries"
HA_PROXIES: Final = b"ray_serve_haproxy_process_count"
MOST: Final = 10**6
"""Requests in flight at one node; a larger number does not count."""
AT_ONCE: Final = 16
SILENT_AFTER: Final = 64
"""Pods without an answer after which the cluster counts as silent."""


class Ongoing(msgspec.Struct, frozen=True, kw_only=True):
    """The requests in flight that nodes report."""

    proxies: int = 0
    """Requests that proxies know of."""
    replicas: int = 0
    """Requests that replicas work on: those of clients, and calls between deployments."""
    has_ha_proxy: bool = False
    has_older: bool = False
    """Whether a HAProxy process that drains may work on requests of its own."""
    lacks_proxy: bool = False
    """Whether a proxy reports no number, so that what it holds is known of replicas alone."""

    @property
    def requests(self) -> int:
        """Return how many requests of clients are in flight; with calls between deployments it may be fewer than that."""
        return (
            max(self.proxies, self.replicas) if self.has_older or self.lacks_proxy else self.proxies
        )


def total(counts: Sequence[Ongoing]) -> Ongoing:
    """Return the sum of what several nodes report."""
    return Ongoing(
        proxies=sum(each.proxies for each in counts),
        replicas=sum(each.replicas for each in counts),
        has_ha_proxy=any(each.has_ha_proxy for each in counts),
        has_older=any(each.has_older for each in counts),
        lacks_proxy=any(each.lacks_proxy for each in counts),
    )


async def ask(
    one: Callable[[Pod], Coroutine[None, None, Ongoing | None]], pods: Sequence[Pod]
) -> list[Ongoing | None]:
    """Return the answers of pods, None for a pod without one; after such a pod the rest is left out, since the total is unknown.

    One RayService may have 10,000 pods, and a tenant's pods may let a caller wait. So it never holds more than `AT_ONCE` of the calls
    that a process makes, and not for longer than a few batches of pods that do not answer.
    """
    counts: list[Ongoing | None] = []
    for first in range(0, len(pods), AT_ONCE):
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(one(pod)) for pod in pods[first : first + AT_ONCE]]
        counts += [each.result() for each in asked]
        answered = sum(each is not None for each in counts)
        if answered < len(counts) and (answered or len(counts) >= SILENT_AFTER):
            break
    return counts


def count(page: bytes) -> Ongoing | None:
    """Return the ongoing requests on a node's page of metrics; None when it does not tell them."""
    names = (*PROXIES, REPLICAS, HA_PROXIES)
    totals: dict[bytes, float] = dict.fromkeys(names, 0.0)
    found: set[bytes] = set()
    try:
        for line in exposition.lines(page, names):
            totals[line.name] += line.value if line.value >= 0 else math.nan
            found.add(line.name)
    except ValueError:
        return None
    proxies = sum(totals[name] for name in PROXIES)
    numbers = (proxies, totals[REPLICAS], totals[HA_PROXIES])
    if not all(number <= MOST for number in numbers) or not exposition.is_of_ray(page):
        return None  # a sum with NaN is not below the limit
    has_ha_proxy, has_proxy = HA_PROXIES in found, not found.isdisjoint(PROXIES)
    if has_ha_proxy and not has_proxy:  # its socket did not answer when it was asked last
        return None
    return Ongoing(
        proxies=math.ceil(proxies),
        replicas=math.ceil(totals[REPLICAS]),
        has_ha_proxy=has_ha_proxy,
        has_older=math.ceil(totals[HA_PROXIES]) > 1,
        lacks_proxy=not has_proxy,
    )
