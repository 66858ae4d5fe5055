"""Requests that a Ray node has answered: their number, their errors, and how long they took, from the metrics that Ray exports for the node.

Names checked against Ray 2.60, from Serve's proxies, from replicas that take requests themselves, and from HAProxy, of which Ray counts the
log lines: `ray_serve_num_http_requests` (with `_total`, and without it from a Ray that exports counters twice), its gRPC sibling, and
`ray_serve_http_request_latency_ms`. The first token of a language model comes from vLLM, with a colon or an underscore in its name, and
without a route.

Not counted: requests that no application has answered, such as health checks of proxies and unknown paths, and WebSocket connections.
Errors are those of the server: HTTP 5xx, 408, which is Serve's own time limit, and gRPC's codes of the same meaning; a client that left
(499, CANCELLED) or sent nonsense is none.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import msgspec

from common import untrusted
from common.ray import exposition

MOST_ROUTES: Final = 64
LONGEST_ROUTE: Final = 256
"""Characters; a longer one counts to `OTHERS`."""
MOST_BOUNDS: Final = 100
MOST: Final = 10**12
"""Requests of one line; a larger number is none that can be meant."""
ALL: Final = ""
OTHERS: Final = "…"
_COUNTERS: Final = (b"ray_serve_num_http_requests", b"ray_serve_num_grpc_requests")
_LATENCIES: Final = (
    b"ray_serve_http_request_latency_ms_bucket",
    b"ray_serve_grpc_request_latency_ms_bucket",
)
_FIRST_TOKENS: Final = (
    b"ray_vllm:time_to_first_token_seconds_bucket",
    b"ray_vllm_time_to_first_token_seconds_bucket",
)
_TOTAL: Final = b"_total"
_NAMES: Final = (
    *(each + _TOTAL for each in _COUNTERS),
    *_COUNTERS,
    *_LATENCIES,
    *_FIRST_TOKENS,
)
_ERRORS: Final = frozenset(
    b"408 UNKNOWN DEADLINE_EXCEEDED RESOURCE_EXHAUSTED UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS".split()
)
"""Beside HTTP 5xx. RESOURCE_EXHAUSTED is what Serve answers with full queues, and 503 in HTTP."""


class Histogram(msgspec.Struct, frozen=True):
    """Durations by bucket."""

    bounds: tuple[float, ...] = ()
    """Upper bounds in seconds, ascending, without infinity."""
    counts: tuple[int, ...] = (0,)
    """Of each bucket alone; the last one is of what is above all bounds."""

    @property
    def total(self) -> int:
        """Return how many durations there are."""
        return sum(self.counts)


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one route, or of all."""

    total: int = 0
    errors: int = 0
    latency: Histogram = Histogram()
    first_token: Histogram = Histogram()


Sample: TypeAlias = Mapping[str, Requests]
"""By route; `ALL` is the sum, `OTHERS` has the routes beyond the limit."""


class Series(NamedTuple):
    """One series of a node: a counter, or a histogram with all its buckets."""

    route: str
    requests: Requests
    """Since the process that exports the series has begun to count."""


NodeSeries: TypeAlias = Mapping[int, Series]
"""The series of one node, by a hash of name and labels: the labels themselves take 400 bytes."""


def parse(page: bytes) -> NodeSeries | None:
    """Return the series on a node's page of metrics.

    None for a page that is not of Ray, that is beyond the limits of `exposition`, or that has a
    number which no counter of requests can have.
    """
    if not exposition.is_of_ray(page):
        return None
    try:
        return _series(exposition.lines(page, _NAMES))
    except ValueError:
        return None


def increase(new: Requests, old: Requests) -> Requests:
    """Return the requests of a series between two of its values.

    A counter that became smaller was reset, and then `new` alone counts, as in Prometheus'
    `increase`.
    """
    increase = Requests(
        total=new.total - old.total,
        errors=new.errors - old.errors,
        latency=_histogram_since(new.latency, old.latency),
        first_token=_histogram_since(new.first_token, old.first_token),
    )
    numbers = (
        increase.total,
        increase.errors,
        *increase.latency.counts,
        *increase.first_token.counts,
    )
    return new if min(numbers) < 0 else increase


def size(requests: Requests) -> int:
    """Return the number of values: one for a counter, one more for each bucket with a bound."""
    return len(requests.latency.counts) + len(requests.first_token.counts) - 1


def by_route(series: Iterable[Series]) -> Sample:
    """Return the sum of several series by route."""
    parts = [(each.route, each.requests) for each in series]
    return _sums([*parts, *((ALL, requests) for route, requests in parts if route != ALL)])


def total(samples: Iterable[Sample]) -> Sample:
    """Return the sum of several samples.

    Of histograms with different bounds, those of the rarer bounds are left out.
    """
    return _sums([part for sample in samples for part in sample.items()])


def _series(lines: Iterable[exposition.Line]) -> dict[int, Series]:
    """Return series by name and labels; a counter that is exported under two names is one.

    Raises `ValueError` for a number that cannot be meant.
    """
    series: dict[int, Series] = {}
    buckets: dict[int, tuple[str, bytes, dict[float, int]]] = {}
    routes: dict[bytes, str] = {}
    has_totals = False
    for name, labels, number in lines:
        value = int(_checked(number, MOST))
        status = labels.get(b"status_code", b"")
        if labels.get(b"application") == b"" or (status.isdigit() and not _is_http(status)):
            continue  # no application answered these requests over HTTP or gRPC
        text = labels.get(b"route", b"")
        if (route := routes.get(text)) is None:
            route = routes[text] = _route(text)
        if name.endswith(b"_bucket"):
            bound = _checked(float(labels.pop(b"le", b"")), math.inf)
            key = hash((name, frozenset(labels.items())))
            buckets.setdefault(key, (route, name, {}))[2][bound] = value
            continue
        has_totals = has_totals or name.endswith(_TOTAL)  # these names come first
        if has_totals and not name.endswith(_TOTAL):
            continue
        is_error = status in _ERRORS or status.startswith(b"5")
        key = hash((name.removesuffix(_TOTAL), frozenset(labels.items())))
        requests = Requests(total=value, errors=value if is_error else 0)
        series[key] = Series(route, requests)
    shared: dict[tuple[float, ...], tuple[float, ...]] = {}
    for key, (route, name, cumulative) in buckets.items():
        found = _histogram(cumulative, 1 if name in _FIRST_TOKENS else 1_000)
        found = Histogram(shared.setdefault(found.bounds, found.bounds), found.counts)
        is_token = name in _FIRST_TOKENS
        series[key] = Series(
            route, Requests(first_token=found) if is_token else Requests(latency=found)
        )
    return series


def _is_http(status: bytes) -> bool:
    return len(status) == 3 and b"1" <= status[:1] <= b"5"


def _route(text: bytes) -> str:
    """Return a route for people to read; a longer one is among the others."""
    route = text.decode(errors="replace")
    return untrusted.plain(route) if len(route) <= LONGEST_ROUTE else OTHERS


def _histogram(cumulative: Mapping[float, int], divisor: int) -> Histogram:
    *bounds, last = sorted(cumulative)
    values = [0, *(cumulative[bound] for bound in (*bounds, last))]
    if last != math.inf or len(bounds) > MOST_BOUNDS or values != sorted(values):
        raise ValueError(bounds)
    counts = tuple(after - before for before, after in pairwise(values))
    return Histogram(tuple(bound / divisor for bound in bounds), counts)


def _checked(number: float, most: float) -> float:
    """Return a number; `ValueError` for one that cannot be meant."""
    if not 0 <= number <= most:  # NaN is not
        raise ValueError(number)
    return number


def _histogram_since(new: Histogram, old: Histogram) -> Histogram:
    if new.bounds != old.bounds:
        return new
    return Histogram(
        new.bounds,
        tuple(after - before for after, before in zip(new.counts, old.counts, strict=True)),
    )


def _sums(parts: Sequence[tuple[str, Requests]]) -> Sample:
    """Return the sum by route, of which there are not too many."""
    kept = {*sorted({route for route, _ in parts} - {ALL, OTHERS})[:MOST_ROUTES], ALL}
    grouped: dict[str, list[Requests]] = {ALL: []}
    for route, requests in parts:
        grouped.setdefault(route if route in kept else OTHERS, []).append(requests)
    return {
        route: Requests(
            total=sum(each.total for each in found),
            errors=sum(each.errors for each in found),
            latency=_merged([each.latency for each in found]),
            first_token=_merged([each.first_token for each in found]),
        )
        for route, found in grouped.items()
    }


def _merged(histograms: Sequence[Histogram]) -> Histogram:
    by_bounds: dict[tuple[float, ...], list[Histogram]] = {}
    for each in histograms:
        if each.bounds:
            by_bounds.setdefault(each.bounds, []).append(each)
    if not by_bounds:
        return Histogram()
    # Not by age or order: two samples of one node must keep the same bounds, or their difference is none.
    bounds, kept = max(
        by_bounds.items(), key=lambda found: (sum(each.total for each in found[1]), found[0])
    )
    return Histogram(bounds, tuple(map(sum, zip(*(each.counts for each in kept), strict=True))))
