"""Parse a Ray node's metrics: number, errors and durations of the requests that it has answered.

Metric names as in Ray 2.60: `ray_serve_num_http_requests` (with or without `_total`),
`ray_serve_http_request_latency_ms`, and the gRPC variants. They are exported by Serve's proxies and
by replicas that take requests directly; for HAProxy, Ray counts HAProxy's log lines. The time to
the first token of a language model comes from vLLM. Its metric has no route.

Requests that no application has answered (health checks of proxies, unknown paths) and WebSocket
connections are not counted. Errors are server errors: HTTP 5xx, 408 (Serve's own time limit), and
the corresponding gRPC codes. A request that the client cancelled (499, CANCELLED) or that was
invalid does not count as an error.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import msgspec

from common import untrusted
from common.ray import exposition

MAX_ROUTES: Final = 64
MAX_ROUTE_LENGTH: Final = 256
"""Maximum length of a route, in characters; requests of longer routes are added to `OTHERS`."""
MAX_BOUNDS: Final = 100
MAX_COUNT: Final = 10**12
"""Maximum value of one counter; a page with a larger number is ignored."""
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
    *(counter + _TOTAL for counter in _COUNTERS),
    *_COUNTERS,
    *_LATENCIES,
    *_FIRST_TOKENS,
)
_ERRORS: Final = frozenset(
    b"408 UNKNOWN DEADLINE_EXCEEDED RESOURCE_EXHAUSTED UNIMPLEMENTED INTERNAL UNAVAILABLE "
    b"DATA_LOSS".split()
)
"""Status codes that count as errors, besides HTTP 5xx.

Serve answers RESOURCE_EXHAUSTED (503 in HTTP) when its queues are full.
"""


class Histogram(msgspec.Struct, frozen=True):
    """A histogram of durations: the number of durations in each bucket."""

    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets in seconds, in ascending order; infinity is left out."""
    counts: tuple[int, ...] = (0,)
    """Number of durations in each bucket, not cumulative.

    The last item is the number of durations above all bounds."""

    @property
    def total(self) -> int:
        return sum(self.counts)


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Number of requests and errors, and durations, of one route or of all routes."""

    total: int = 0
    errors: int = 0
    latency: Histogram = Histogram()
    first_token: Histogram = Histogram()


Sample: TypeAlias = Mapping[str, Requests]
"""Requests by route. `ALL` is the sum; `OTHERS` has the routes beyond the first `MAX_ROUTES`."""


class Series(NamedTuple):
    """One series of a node: a counter, or a histogram with all its buckets."""

    route: str
    requests: Requests
    """Requests since the start of the process that exports the series."""


NodeSeries: TypeAlias = Mapping[int, Series]
"""The series of one node, by a hash of name and labels.

The labels themselves would take 400 bytes a series."""


def parse(page: bytes) -> NodeSeries | None:
    """Return the series on a node's metrics page.

    None if the page is not from Ray, exceeds the limits of `exposition`, or has an impossible
    number.
    """
    if not exposition.is_of_ray(page):
        return None
    try:
        return _series(exposition.lines(page, _NAMES))
    except ValueError:
        return None


def increase(new: Requests, old: Requests) -> Requests:
    """Return the increase of a series from `old` to `new`.

    If a number became smaller, the counters were reset, and the result is `new`, as in Prometheus'
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
    """Return how many numbers a series has: a counter has 1, a histogram 1 for each bucket."""
    return len(requests.latency.counts) + len(requests.first_token.counts) - 1


def by_route(series: Iterable[Series]) -> Sample:
    """Return the sum of several series for each route, and for all routes together."""
    parts = [(one_series.route, one_series.requests) for one_series in series]
    return _sums([*parts, *((ALL, requests) for route, requests in parts if route != ALL)])


def total(samples: Iterable[Sample]) -> Sample:
    """Return the sum of several samples for each route.

    Histograms with different bounds cannot be added; only the most frequent bounds count.
    """
    return _sums([part for sample in samples for part in sample.items()])


def _series(lines: Iterable[exposition.Line]) -> dict[int, Series]:
    """Return the series by a hash of name and labels.

    A counter that is exported with and without `_total` counts once. Raises `ValueError` for an
    impossible number.
    """
    series: dict[int, Series] = {}
    buckets: dict[int, tuple[str, bytes, dict[float, int]]] = {}
    routes: dict[bytes, str] = {}
    has_totals = False
    for name, labels, number in lines:
        value = int(_checked(number, MAX_COUNT))
        status = labels.get(b"status_code", b"")
        if labels.get(b"application") == b"" or (status.isdigit() and not _is_http(status)):
            continue  # not answered by an application over HTTP or gRPC
        text = labels.get(b"route", b"")
        if (route := routes.get(text)) is None:
            route = routes[text] = _route(text)
        if name.endswith(b"_bucket"):
            bound = _checked(float(labels.pop(b"le", b"")), math.inf)
            key = hash((name, frozenset(labels.items())))
            buckets.setdefault(key, (route, name, {}))[2][bound] = value
            continue
        has_totals = has_totals or name.endswith(_TOTAL)  # _NAMES lists these names first
        if has_totals and not name.endswith(_TOTAL):
            continue
        is_error = status in _ERRORS or status.startswith(b"5")
        key = hash((name.removesuffix(_TOTAL), frozenset(labels.items())))
        requests = Requests(total=value, errors=value if is_error else 0)
        series[key] = Series(route, requests)
    shared: dict[tuple[float, ...], tuple[float, ...]] = {}
    for key, (route, name, cumulative) in buckets.items():
        histogram = _histogram(cumulative, 1 if name in _FIRST_TOKENS else 1_000)
        histogram = Histogram(
            shared.setdefault(histogram.bounds, histogram.bounds), histogram.counts
        )
        is_token = name in _FIRST_TOKENS
        series[key] = Series(
            route, Requests(first_token=histogram) if is_token else Requests(latency=histogram)
        )
    return series


def _is_http(status: bytes) -> bool:
    return len(status) == 3 and b"1" <= status[:1] <= b"5"


def _route(text: bytes) -> str:
    """Return a route without control characters; `OTHERS` if it is too long."""
    route = text.decode(errors="replace")
    return untrusted.plain(route) if len(route) <= MAX_ROUTE_LENGTH else OTHERS


def _histogram(cumulative: Mapping[float, int], divisor: int) -> Histogram:
    *bounds, last = sorted(cumulative)
    values = [0, *(cumulative[bound] for bound in (*bounds, last))]
    if last != math.inf or len(bounds) > MAX_BOUNDS or values != sorted(values):
        raise ValueError(bounds)
    counts = tuple(after - before for before, after in pairwise(values))
    return Histogram(tuple(bound / divisor for bound in bounds), counts)


def _checked(number: float, most: float) -> float:
    """Return a number from 0 to `most`; raise `ValueError` for any other."""
    if not 0 <= number <= most:  # also true for NaN
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
    """Return the sum for each route. Routes after the first `MAX_ROUTES` are added to `OTHERS`."""
    kept = {*sorted({route for route, _ in parts} - {ALL, OTHERS})[:MAX_ROUTES], ALL}
    grouped: dict[str, list[Requests]] = {ALL: []}
    for route, requests in parts:
        grouped.setdefault(route if route in kept else OTHERS, []).append(requests)
    return {
        route: Requests(
            total=sum(part.total for part in parts),
            errors=sum(part.errors for part in parts),
            latency=_merged([part.latency for part in parts]),
            first_token=_merged([part.first_token for part in parts]),
        )
        for route, parts in grouped.items()
    }


def _merged(histograms: Sequence[Histogram]) -> Histogram:
    by_bounds: dict[tuple[float, ...], list[Histogram]] = {}
    for histogram in histograms:
        if histogram.bounds:
            by_bounds.setdefault(histogram.bounds, []).append(histogram)
    if not by_bounds:
        return Histogram()
    # Do not choose the bounds by age or order: two samples of one node must have the same bounds,
    # or else one cannot be subtracted from the other.
    bounds, kept = max(
        by_bounds.items(),
        key=lambda entry: (sum(histogram.total for histogram in entry[1]), entry[0]),
    )
    return Histogram(
        bounds, tuple(map(sum, zip(*(histogram.counts for histogram in kept), strict=True)))
    )
