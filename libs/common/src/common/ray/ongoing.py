"""Count the requests in flight at a node's Serve proxy, from the node's Ray metrics.

Serve's REST API does not report the number. Metric names as in Ray 2.60:
`ray_serve_num_ongoing_http_requests` and the gRPC variant. A proxy sets the metric when a request
begins or ends, and Ray drops a metric that was not set for 20 s. So a proxy without the metric has
no requests, or only long streams. The replicas report streams continuously.

If the proxy is HAProxy, the metric counts only the requests of HAProxy's newest process. A draining
process does not report the older requests that it continues, but the replicas do.
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
"""Maximum plausible requests in flight at one node; a larger number is treated as no answer."""
MAX_CONCURRENT_READS: Final = 16
SILENT_AFTER: Final = 64
"""Number of pods of a cluster after which no others are asked if none of them has answered."""


class Ongoing(msgspec.Struct, frozen=True, kw_only=True):
    """The requests in flight that one or more nodes report."""

    proxies: int = 0
    """Number of requests from clients, as proxies report it."""
    replicas: int = 0
    """Number of requests that replicas process, including calls between deployments."""
    has_ha_proxy: bool = False
    has_older: bool = False
    """Whether an older HAProxy process still runs, which does not report its requests."""
    lacks_proxy: bool = False
    """Whether the metric of a node's proxy is missing, so that only replicas report requests."""

    @property
    def requests(self) -> int:
        """Return the number of client requests in flight.

        The number may be too high, because replicas also process calls between deployments.
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
    """Call `one` for each pod in batches and return the answers in order, None for no answer.

    If only some pods answer, the later batches are skipped, since the total is unknown anyway. If
    no pod answers, they are skipped after `SILENT_AFTER` pods. A RayService may have 10,000 pods,
    and a tenant's pods may delay their answers. So a batch has at most `MAX_CONCURRENT_READS` pods,
    and the wait is limited to a few batches.
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
        return None  # also if a sum is NaN
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
