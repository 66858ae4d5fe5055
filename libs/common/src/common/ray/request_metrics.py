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


def parse(exposition: bytes) -> Sample | None:
    """Return what a node's metrics state; None where it was not Ray that answered, or a number cannot be meant."""
    found = _LINES.findall(exposition)
    if len(found) > MOST_LINES or not _IS_RAY.search(exposition):
        return None
    try:
        parts = [*_parts(found)]
    except ValueError:
        return None
    return _sums([*parts, *((ALL, requests) for route, requests in parts if route != ALL)])


def difference(new: Sample, old: Sample) -> Sample:
    """Return the requests between two samples; a counter that became smaller was reset, and then `new` alone counts."""
    return {route: _since(requests, old.get(route, Requests())) for route, requests in new.items()}


def total(samples: Iterable[Sample]) -> Sample:
    """Return the sum of several samples; of histograms with different bounds, those of the rarer bounds are left out."""
    return _sums([part for sample in samples for part in sample.items()])


def _parts(lines: Iterable[tuple[bytes, bytes, bytes]]) -> Iterator[tuple[str, Requests]]:
    """Yield counters and histograms with their routes; of a counter that is exported under two names, one is read.

    Raises `ValueError` for a number that cannot be meant.
    """
    counters: list[tuple[bool, str, Requests]] = []
    series: dict[tuple[bytes, str, frozenset[tuple[bytes, bytes]]], dict[float, int]] = {}
    for name, text, number in lines:
        value, labels = int(_number(number, MOST)), dict(_LABEL.findall(text))
        status = labels.get(b"status_code", b"")
        if labels.get(b"application") == b"" or (status.isdigit() and not _HTTP.fullmatch(status)):
            continue  # no application answered these requests over HTTP or gRPC
        route = _ESCAPE.sub(r"\1", labels.get(b"route", b"").decode(errors="replace"))
        route = untrusted.plain(route) if len(route) <= LONGEST_ROUTE else OTHERS
        if name.endswith(b"_bucket"):
            bound = _number(labels.pop(b"le", b""), math.inf) / (
                1 if name.startswith(b"vllm") else 1_000
            )
            series.setdefault((name, route, frozenset(labels.items())), {})[bound] = value
        else:
            is_error = status in _ERRORS or status.startswith(b"5")
            counters.append(
                (
                    name.endswith(b"_total"),
                    route,
                    Requests(total=value, errors=value if is_error else 0),
                )
            )
    has_totals = any(is_total for is_total, _, _ in counters)
    yield from (
        (route, requests) for is_total, route, requests in counters if is_total == has_totals
    )
    for (name, route, _), cumulative in series.items():
        found = _histogram(cumulative)
        yield (
            route,
            Requests(first_token=found) if name.startswith(b"vllm") else Requests(latency=found),
        )


def _histogram(cumulative: Mapping[float, int]) -> Histogram:
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
    return Histogram(
        new.bounds,
        tuple(after - before for after, before in zip(new.counts, old.counts, strict=True)),
    )


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
    bounds, kept = max(
        by_bounds.items(), key=lambda found: (sum(each.total for each in found[1]), found[0])
    )
    return Histogram(bounds, tuple(map(sum, zip(*(each.counts for each in kept), strict=True))))
