"""Requests in flight at a node's Serve proxy, from the metrics that Ray exports for the node.

Serve's REST API does not report it. Names checked against Ray 2.60: `ray_serve_num_ongoing_http_requests` and its gRPC sibling.
A proxy of Serve's own that never had a request exports no such line.

Where HAProxy is the proxy, that line counts the requests of HAProxy's newest process. A draining process continues with older
requests and reports none of them, but the replicas that work on them do.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

PROXIES: Final = (b"ray_serve_num_ongoing_http_requests", b"ray_serve_num_ongoing_grpc_requests")
REPLICAS: Final = b"ray_serve_replica_processing_queries"
HA_PROXIES: Final = b"ray_serve_haproxy_process_count"
MOST: Final = 10**6
"""Requests in flight at one node; a larger number does not count."""
_SAMPLES: Final = re.compile(rb"^(?:" + b"|".join((*PROXIES, REPLICAS, HA_PROXIES)) + rb")[^\r\n]*", re.MULTILINE)
"""Of an untrusted text, only these lines are parsed."""
_IS_RAY: Final = re.compile(rb"^ray_", re.MULTILINE)
"""Every metric of a Ray node begins so; without any, it was not Ray that answered."""


class Ongoing(msgspec.Struct, frozen=True, kw_only=True):
    """The requests in flight that nodes report."""

    proxies: int = 0
    """Requests that proxies know of."""
    replicas: int = 0
    """Requests that replicas work on: those of clients, and calls between deployments."""
    has_ha_proxy: bool = False
    has_older: bool = False
    """Whether a HAProxy process that drains may work on requests of its own."""

    @property
    def requests(self) -> int:
        """Return how many requests of clients are in flight; with calls between deployments it may be fewer than that."""
        return max(self.proxies, self.replicas) if self.has_older else self.proxies


def total(counts: Sequence[Ongoing]) -> Ongoing:
    """Return the sum of what several nodes report."""
    return Ongoing(
        proxies=sum(each.proxies for each in counts),
        replicas=sum(each.replicas for each in counts),
        has_ha_proxy=any(each.has_ha_proxy for each in counts),
        has_older=any(each.has_older for each in counts),
    )


def count(exposition: bytes) -> Ongoing | None:
    """Return the ongoing requests in a text of Prometheus's format; None when it has none."""
    lines = _SAMPLES.findall(exposition)
    proxies, replicas, processes = (_sum(lines, names) for names in (PROXIES, (REPLICAS,), (HA_PROXIES,)))
    if proxies is None or replicas is None or processes is None:
        return None
    if not _IS_RAY.search(exposition):
        return None
    if processes.is_reported and not proxies.is_reported:  # its socket did not answer when it was asked last
        return None
    return Ongoing(
        proxies=proxies.number,
        replicas=replicas.number,
        has_ha_proxy=processes.is_reported,
        has_older=processes.number > 1,
    )


class _Sum(msgspec.Struct, frozen=True):
    number: int
    is_reported: bool


def _sum(lines: Sequence[bytes], names: tuple[bytes, ...]) -> _Sum | None:
    """Add up the lines of some names; None when one of them is no number."""
    found = [_number(line, names) for line in lines if line.startswith(names)]
    reported = [each for each in found if each is not None]
    number = sum(reported)
    return _Sum(math.ceil(number), bool(reported)) if number <= MOST else None


def _number(line: bytes, names: tuple[bytes, ...]) -> float | None:
    """Return a line's value, NaN where it is none that can be meant, None where the line has another name."""
    name, _, rest = line.partition(b"{")
    value = rest.rpartition(b"}")[2] if rest else line.partition(b" ")[2]
    if name.partition(b" ")[0] not in names:
        return None
    try:
        number = float(value.split()[0])
    except (ValueError, IndexError):
        return math.nan
    return number if math.isfinite(number) and number >= 0 else math.nan
