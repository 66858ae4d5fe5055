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
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from common import untrusted

MOST_LINES: Final = 50_000
"""Lines of one exposition that are read; a node with more has no sample."""
MOST_ROUTES: Final = 64
LONGEST_ROUTE: Final = 256
"""Characters; a longer one counts to `OTHERS`."""
MOST_BOUNDS: Final = 100
MOST: Final = 10**12
"""Requests of one line; a larger number is none that can be meant."""
ALL: Final = ""
OTHERS: Final = "…"
_LINES: Final = re.compile(
    rb"^ray_(serve_num_(?:http|grpc)_requests(?:_total)?|serve_(?:http|grpc)_request_latency_ms_bucket"
    rb"|vllm[:_]time_to_first_token_seconds_bucket)"
    rb'\{((?:[^"}\r\n]|"(?:[^"\\\r\n]|\\.)*")*)\}[ \t]+([^ \t\r\n]+)',
    re.MULTILINE,
)
"""Name, labels and value; of an untrusted text, only these lines are parsed."""
_LABEL: Final = re.compile(rb'(?:^|,)[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")
_IS_RAY: Final = re.compile(rb"^ray_", re.MULTILINE)
_HTTP: Final = re.compile(rb"[1-5][0-9][0-9]")
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


class _Line(msgspec.Struct, frozen=True):
    """One line of an exposition."""

    name: bytes
    labels: dict[bytes, bytes]
    value: int

    @property
    def is_counted(self) -> bool:
        """Return whether an application answered these requests, over HTTP or gRPC."""
        status = self.labels.get(b"status_code", b"")
        return self.labels.get(b"application") != b"" and (not status.isdigit() or _HTTP.fullmatch(status) is not None)

    @property
    def is_bucket(self) -> bool:
        return self.name.endswith(b"_bucket")

    @property
    def is_total(self) -> bool:
        return self.name.endswith(b"_total")

    @property
    def route(self) -> str:
        text = _ESCAPE.sub(r"\1", self.labels.get(b"route", b"").decode(errors="replace"))
        return untrusted.plain(text) if len(text) <= LONGEST_ROUTE else OTHERS

    @property
    def series(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the labels without the bound."""
        return tuple(sorted((key, value) for key, value in self.labels.items() if key != b"le"))


def parse(exposition: bytes) -> Sample | None:
    """Return what a node's metrics state; None where it was not Ray that answered, or a number cannot be meant."""
    found = _LINES.findall(exposition)
    if len(found) > MOST_LINES or not _IS_RAY.search(exposition):
        return None
    try:
        lines = [_Line(name, dict(_LABEL.findall(labels)), int(_number(text, MOST))) for name, labels, text in found]
        counted = [line for line in lines if line.is_counted]
        parts = [*_counters(counted), *_histograms(counted)]
    except ValueError:
        return None
    return _sums([*parts, *((ALL, requests) for route, requests in parts if route != ALL)])


def difference(new: Sample, old: Sample) -> Sample:
    """Return the requests between two samples; a counter that became smaller was reset, and then `new` alone counts."""
    return {route: _since(requests, old.get(route, Requests())) for route, requests in new.items()}


def total(samples: Iterable[Sample]) -> Sample:
    """Return the sum of several samples; of histograms with different bounds, those of the rarer bounds are left out."""
    return _sums([part for sample in samples for part in sample.items()])


def _counters(lines: Sequence[_Line]) -> Iterator[tuple[str, Requests]]:
    """Yield the counters; of one that is exported under two names, one is read."""
    has_totals = any(line.is_total for line in lines)
    for line in lines:
        if not line.is_bucket and line.is_total == has_totals:
            status = line.labels.get(b"status_code", b"")
            is_error = status in _ERRORS or status.startswith(b"5")
            yield line.route, Requests(total=line.value, errors=line.value if is_error else 0)


def _histograms(lines: Sequence[_Line]) -> Iterator[tuple[str, Requests]]:
    """Yield the histogram of each series; `ValueError` for one that cannot be meant."""
    series: dict[tuple[bytes, tuple[tuple[bytes, bytes], ...]], list[_Line]] = {}
    for line in lines:
        if line.is_bucket:
            series.setdefault((line.name, line.series), []).append(line)
    for (name, _), buckets in series.items():
        if name.startswith(b"vllm"):
            yield buckets[0].route, Requests(first_token=_histogram(buckets, 1))
        else:
            yield buckets[0].route, Requests(latency=_histogram(buckets, 1_000))


def _histogram(buckets: Sequence[_Line], per_second: int) -> Histogram:
    cumulative = {_number(line.labels.get(b"le", b""), math.inf) / per_second: line.value for line in buckets}
    *bounds, last = sorted(cumulative)
    values = [0, *(cumulative[bound] for bound in (*bounds, last))]
    if last != math.inf or len(bounds) > MOST_BOUNDS or values != sorted(values):
        raise ValueError(bounds)
    return Histogram(tuple(bounds), tuple(after - before for before, after in pairwise(values)))


def _number(text: bytes, most: float) -> float:
    """Read a number; `ValueError` for one that cannot be meant."""
    number = float(text)
    if not 0 <= number <= most:  # NaN is not
        raise ValueError(number)
    return number


def _since(new: Requests, old: Requests) -> Requests:
    since = Requests(
        total=new.total - old.total,
        errors=new.errors - old.errors,
        latency=_histogram_since(new.latency, old.latency),
        first_token=_histogram_since(new.first_token, old.first_token),
    )
    numbers = (since.total, since.errors, *since.latency.counts, *since.first_token.counts)
    return new if min(numbers) < 0 else since


def _histogram_since(new: Histogram, old: Histogram) -> Histogram:
    if new.bounds != old.bounds:
        return new
    return Histogram(new.bounds, tuple(after - before for after, before in zip(new.counts, old.counts, strict=True)))


def _sums(parts: Sequence[tuple[str, Requests]]) -> Sample:
    """Return the sum by route, of which there are not too many."""
    kept = {*sorted({route for route, _ in parts} - {ALL, OTHERS})[:MOST_ROUTES], ALL}
    by_route: dict[str, list[Requests]] = {ALL: []}
    for route, requests in parts:
        by_route.setdefault(route if route in kept else OTHERS, []).append(requests)
    return {
        route: Requests(
            total=sum(each.total for each in found),
            errors=sum(each.errors for each in found),
            latency=_merged([each.latency for each in found]),
            first_token=_merged([each.first_token for each in found]),
        )
        for route, found in by_route.items()
    }


def _merged(histograms: Sequence[Histogram]) -> Histogram:
    by_bounds: dict[tuple[float, ...], list[Histogram]] = {}
    for each in histograms:
        if each.bounds:
            by_bounds.setdefault(each.bounds, []).append(each)
    if not by_bounds:
        return Histogram()
    # Not by age or order: two samples of one node must keep the same bounds, or their difference is none.
    bounds, kept = max(by_bounds.items(), key=lambda found: (sum(each.total for each in found[1]), found[0]))
    return Histogram(bounds, tuple(map(sum, zip(*(each.counts for each in kept), strict=True))))
