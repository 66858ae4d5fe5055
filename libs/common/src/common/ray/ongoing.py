"""Count the requests in flight at a node's Serve proxy, from the node's Ray metrics.

Serve's REST API does not report the number. Metric names as in Ray 2.60:
`ray_serve_num_ongoing_http_requests` and the gRPC variant. A proxy sets the metric when a request
begins or ends, and Ray drops a metric that was not set for 20 s. So a proxy without the metric has
had no request for a while, or only long streams; the replicas report those continuously.

With HAProxy as the proxy, the metric counts only the requests of HAProxy's newest process. A
draining process continues older requests without reporting them, but the replicas that process them
report them.
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
MAX_REQUESTS: Final = 10**6
"""Maximum requests in flight at one node; a larger number is treated as no answer."""
MAX_CONCURRENT_READS: Final = 16
SILENT_AFTER: Final = 64
"""Number of pods without an answer after which the rest of the cluster is not asked."""


class Ongoing(msgspec.Struct, frozen=True, kw_only=True):
    """The requests in flight that nodes report."""

    proxies: int = 0
    """Requests of clients that proxies report."""
    replicas: int = 0
    """Requests that replicas process: requests of clients, and calls between deployments."""
    has_ha_proxy: bool = False
    has_older: bool = False
    """Whether a draining HAProxy process may still have requests that it does not report."""
    lacks_proxy: bool = False
    """Whether a proxy reports no number, so that only replicas report its requests."""

    @property
    def requests(self) -> int:
        """Return the number of client requests in flight.

        It may be too high, if replicas also process calls between deployments.
        """
        return (
            max(self.proxies, self.replicas) if self.has_older or self.lacks_proxy else self.proxies
        )


def total(counts: Sequence[Ongoing]) -> Ongoing:
    """Return the sum of the counts of several nodes."""
    return Ongoing(
        proxies=sum(count.proxies for count in counts),
        replicas=sum(count.replicas for count in counts),
        has_ha_proxy=any(count.has_ha_proxy for count in counts),
        has_older=any(count.has_older for count in counts),
        lacks_proxy=any(count.lacks_proxy for count in counts),
    )


async def ask(
    one: Callable[[Pod], Coroutine[None, None, Ongoing | None]], pods: Sequence[Pod]
) -> list[Ongoing | None]:
    """Call `one` for pods in batches; return the answers in order, None for a missing answer.

    After a pod without an answer the rest is skipped, since the total is unknown anyway. (While no
    pod has answered, that happens after `SILENT_AFTER` pods.) A RayService may have 10,000 pods and
    a tenant's pods may delay their answers, so one caller uses at most `MAX_CONCURRENT_READS`
    concurrent requests, and waits only for a few batches of pods that do not answer.
    """
    counts: list[Ongoing | None] = []
    for first in range(0, len(pods), MAX_CONCURRENT_READS):
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(one(pod)) for pod in pods[first : first + MAX_CONCURRENT_READS]
            ]
        counts += [task.result() for task in asked]
        answered = sum(count is not None for count in counts)
        if answered < len(counts) and (answered or len(counts) >= SILENT_AFTER):
            break
    return counts


def count(page: bytes) -> Ongoing | None:
    """Return the requests in flight from a metrics page; None if the page does not show them."""
    names = (*PROXIES, REPLICAS, HA_PROXIES)
    totals: dict[bytes, float] = dict.fromkeys(names, 0.0)
    names_on_page: set[bytes] = set()
    try:
        for line in exposition.lines(page, names):
            totals[line.name] += line.value if line.value >= 0 else math.nan
            names_on_page.add(line.name)
    except ValueError:
        return None
    proxies = sum(totals[name] for name in PROXIES)
    numbers = (proxies, totals[REPLICAS], totals[HA_PROXIES])
    if not all(number <= MAX_REQUESTS for number in numbers) or not exposition.is_of_ray(page):
        return None  # a sum with NaN is not below the limit either
    has_ha_proxy, has_proxy = HA_PROXIES in names_on_page, not names_on_page.isdisjoint(PROXIES)
    if has_ha_proxy and not has_proxy:  # HAProxy's stats socket did not answer Ray's last read
        return None
    return Ongoing(
        proxies=math.ceil(proxies),
        replicas=math.ceil(totals[REPLICAS]),
        has_ha_proxy=has_ha_proxy,
        has_older=math.ceil(totals[HA_PROXIES]) > 1,
        lacks_proxy=not has_proxy,
    )
