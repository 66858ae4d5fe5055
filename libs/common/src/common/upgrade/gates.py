"""Whether the requests of a pending cluster are within the limit of a gate.

A gate is evaluated each second, and an upgrade ends at the first failure, so the comparison is valid at any time
(`common.upgrade.sequential`). `ALPHA` is shared by the gates of an upgrade and by its windows, and of a gate by all requests and by each route. A limit by
growth needs an upper bound of the active cluster's value that holds at any time, too; the bound and the comparison have half of it each. The
window begins with each step and grows: the requests of earlier steps would hide errors that begin late.

With few requests the bound is loose, and within it is not good yet: a gate by growth passes by the value that was observed of the active
cluster, not by its bound. One error alone is no rate.

Durations are only known by bucket. A quantile is interpolated within its bucket. Against the active cluster the requests above the limit
are, too: both clusters have the same buckets, so equal versions stay equal. Against an absolute limit only those count that are
certainly above it. A limit within a wide bucket is as exact as the bucket; RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS sets the bounds.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final

import msgspec

from common.ray.request_metrics import ALL, Histogram, Requests, Sample
from common.upgrade import sequential
from common.upgrade.gate_types import MOST_GATES, AnyGate, AskingGate, Gate, Metric

ALPHA: Final = 0.01
"""Probability that an upgrade to an equal version fails by its gates."""


class Outcome(StrEnum):
    """What a gate decides."""

    PASS = "Pass"  # noqa: S105 - no password
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    """Too few requests for either; no data is neither success nor failure."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a gate, with what it is about."""

    gate: AnyGate
    outcome: Outcome
    requests: int = 0
    """Of the pending cluster in the window."""
    value: float | None = None
    """A fraction of requests, seconds, or what Prometheus answered; None without requests, and of a webhook."""
    limit: float | None = None
    """None where the active cluster has too few requests, and of a webhook."""
    route: str = ALL
    """`ALL`, or the route that failed."""
    text: str


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that both clusters of an upgrade answered since the weights last changed, as far as this process observed it, or since a moment within the step."""

    active: Sample
    """Those of the step before, where all traffic has moved."""
    pending: Sample
    number: int | None = None
    """How many windows began within the step until then: the later ones have less of the probability of a false alarm; None of the step's own."""
    recent: tuple["Window", ...] = ()
    """Those within the step."""


NO_WINDOW: Final = Window(active={}, pending={})


def unanswered(gate: AskingGate, problem: str | None = None) -> Result:
    """Return the outcome of a gate without an answer, and why there is none."""
    text = f"{gate.title}: {gate.host} {problem or 'is asked'}"
    return Result(gate=gate, outcome=Outcome.INCONCLUSIVE, text=text)


class _Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate allows."""

    value: float = math.inf
    passes: float = math.inf
    """Within which the gate passes: by growth, the limit by the observed value of the active cluster."""
    reason: str = ""
    awaits: str | None = None
    """What is missing of the active cluster; then there is no limit."""


class _Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What the pending cluster shows of it."""

    requests: int
    beyond: int
    """Requests beyond the limit."""
    allowed: float
    """The fraction that may be beyond it."""
    value: float
    """0 without requests."""
    limit: _Limit
    text: str


def evaluate(gate: Gate, active: Sample, pending: Sample, *, windows: int = 1) -> Result:
    """Return the outcome of a gate over the same window of both clusters: of all requests, or of a route that fails by itself.

    `windows` is how many of them an upgrade has: each is a test of its own.
    """
    routes = [route for route in sorted(pending.keys() - {ALL}) if _observed(gate, pending[route])]
    alpha = ALPHA / MOST_GATES / windows
    if len(routes) < 2:  # one route has all the requests
        return _result(gate, ALL, active, pending, alpha)
    whole, share = (
        _result(gate, ALL, active, pending, alpha / 2),
        alpha / 2 / len(active.keys() | pending.keys()),
    )
    return _decisive([whole, *(_result(gate, route, active, pending, share) for route in routes)])


def lowest_found(gate: Gate, requests: int, *, steps: int) -> float | None:
    """Return about the lowest rate of errors that fails a gate with a limit of its own in 9 of 10 cases, within so many requests of a step."""
    if gate.metric is not Metric.ERROR_RATE or not gate.max:
        return None
    return sequential.lowest_found(requests, gate.max, ALPHA / MOST_GATES / windows_of(steps))


def within(gate: Gate, window: Window, steps: int) -> Result:
    """Return the outcome of a gate over the whole step, or in a window within it that fails by itself."""
    windows = (window, *window.recent)
    return _decisive(
        [
            evaluate(gate, each.active, each.pending, windows=windows_of(steps, each.number))
            for each in windows
        ]
    )


def windows_of(steps: int, number: int | None = None) -> int:
    """Return as one of how many windows of an upgrade a step's own counts, or the n-th within the step.

    Any number of them may begin within a step. The step's own has one half of its probability of a false alarm, and of the other half
    the n-th has 1 / (n (n + 1)): together that is no more than one half.
    """
    return 2 * steps if number is None else 2 * steps * number * (number + 1)


def _decisive(results: Sequence[Result]) -> Result:
    """Return the first result that fails, else the first of all."""
    return next((each for each in results if each.outcome is Outcome.FAIL), results[0])


def _observed(gate: Gate, requests: Requests) -> int:
    return requests.total if gate.metric is Metric.ERROR_RATE else _histogram(gate, requests).total


def _histogram(gate: Gate, requests: Requests) -> Histogram:
    return requests.latency if gate.metric is Metric.LATENCY else requests.first_token


def _result(gate: Gate, route: str, active: Sample, pending: Sample, alpha: float) -> Result:
    alpha = alpha if gate.max_increase is None else alpha / 2
    measured = _errors if gate.metric is Metric.ERROR_RATE else _durations
    measure = measured(gate, active.get(route, Requests()), pending.get(route, Requests()), alpha)
    outcome, text = _outcome(gate, measure, alpha)
    return Result(
        gate=gate,
        outcome=outcome,
        requests=measure.requests,
        value=measure.value if measure.requests else None,
        limit=None if measure.limit.awaits else measure.limit.value,
        route=route,
        text=f"{gate.title}{f' of {route}' if route != ALL else ''}: {text}",
    )


def _outcome(gate: Gate, measure: _Measure, alpha: float) -> tuple[Outcome, str]:
    limit, value, is_beyond = measure.limit, measure.value, measure.value > measure.limit.value
    if limit.awaits is not None:
        return Outcome.INCONCLUSIVE, limit.awaits
    if is_beyond and sequential.evidence(
        measure.beyond, measure.requests, measure.allowed
    ) > -math.log(alpha):
        return Outcome.FAIL, measure.text
    if measure.requests < gate.min_requests:
        return Outcome.INCONCLUSIVE, f"{measure.requests} of {gate.min_requests} requests observed"
    if value <= limit.passes:
        return Outcome.PASS, measure.text
    shown = "" if is_beyond else f" above {_shown(gate, limit.passes)}"
    return Outcome.INCONCLUSIVE, f"{measure.text}; too few requests to exclude chance{shown}"


def _errors(gate: Gate, active: Requests, pending: Requests, alpha: float) -> _Measure:
    requests, errors = pending.total, min(pending.errors, pending.total)
    limit = _limit_of_errors(gate, active, pending, alpha)
    value = errors / requests if requests else 0.0
    return _Measure(
        requests=requests,
        beyond=errors,
        allowed=limit.value,
        value=value,
        limit=limit,
        text=f"{errors} of {requests} requests failed ({_percent(value)}), at most {_percent(limit.value)} allowed{limit.reason}",
    )


def _limit_of_errors(gate: Gate, active: Requests, pending: Requests, alpha: float) -> _Limit:
    if gate.max_increase is None:
        return _Limit(value=gate.max or 0.0, passes=gate.max or 0.0)
    if active.total < gate.min_requests:
        return _Limit(awaits=_awaits_active(active.total, gate.min_requests))
    growth, errors = 1 + gate.max_increase, min(active.errors, active.total)
    bound = sequential.highest_rate(errors, active.total, alpha)
    limit, seen = min(1.0, bound * growth), errors / active.total * growth
    passes = min(limit, max(seen, 1 / pending.total if pending.total else 0.0))
    return _Limit(value=limit, passes=passes, reason=_reason(gate.max_increase, _percent(bound)))


def _durations(gate: Gate, active: Requests, pending: Requests, alpha: float) -> _Measure:
    quantile, histogram = gate.quantile or 0.0, _histogram(gate, pending)
    limit = _limit_of_durations(gate, _histogram(gate, active), histogram, alpha)
    value = _quantile(histogram, quantile * histogram.total) if histogram.total else 0.0
    shown = (
        _seconds(value) if math.isfinite(value) else f"more than {_seconds(histogram.bounds[-1])}"
    )
    return _Measure(
        requests=histogram.total,
        beyond=_above(histogram, limit.value, is_interpolated=gate.max is None),
        allowed=1 - quantile,
        value=value,
        limit=limit,
        text=f"{shown} in {histogram.total} requests, at most {_seconds(limit.value)} allowed{limit.reason}",
    )


def _limit_of_durations(gate: Gate, active: Histogram, pending: Histogram, alpha: float) -> _Limit:
    if gate.max_increase is None:
        return _Limit(value=gate.max or 0.0, passes=gate.max or 0.0)
    quantile = gate.quantile or 0.0
    needed = max(gate.min_requests, sequential.requests_for_a_bound(quantile, alpha))
    if active.total < needed:
        return _Limit(awaits=_awaits_active(active.total, needed))
    if pending.total and pending.bounds != active.bounds:
        remedy = "set RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS to the same bounds"
        return _Limit(awaits=f"the clusters measure durations in different buckets; {remedy}")
    bound = _highest_quantile(active, quantile, alpha)
    if math.isinf(bound):
        end = _seconds(active.bounds[-1]) if active.bounds else "0s"
        return _Limit(
            awaits=f"the active cluster's value may be above {end}, its last bucket's bound"
        )
    growth, value = 1 + gate.max_increase, _quantile(active, quantile * active.total)
    return _Limit(
        value=bound * growth,
        passes=value * growth,
        reason=_reason(gate.max_increase, _seconds(bound)),
    )


def _awaits_active(requests: int, needed: int) -> str:
    return f"{requests} of {needed} requests of the active cluster observed"


def _reason(increase: float, bound: str) -> str:
    return f" ({_percent(increase)} above the active cluster's, which is at most {bound})"


def _highest_quantile(histogram: Histogram, quantile: float, alpha: float) -> float:
    """Return the longest duration that the quantile may have, of enough observations for a bound; infinite above all buckets' bounds."""
    total = histogram.total
    ranks = range(math.ceil(quantile * total), total + 1)
    rank = bisect_left(
        ranks, 1, key=lambda below: sequential.is_bound(below, total, quantile, alpha)
    )
    return _quantile(histogram, ranks[rank])


# --- durations by bucket -----------------------------------------------------------------------------------------------


def _quantile(histogram: Histogram, rank: float) -> float:
    """Return the duration with so many others below it, interpolated in its bucket; infinite above all bounds."""
    below = list(accumulate(histogram.counts, initial=0))
    bucket = max(bisect_left(below, rank) - 1, 0)
    if bucket >= len(histogram.bounds):
        return math.inf
    low, high = (0.0, *histogram.bounds)[bucket], histogram.bounds[bucket]
    count = histogram.counts[bucket]
    return low + (high - low) * (rank - below[bucket]) / count if count else high


def _above(histogram: Histogram, limit: float, *, is_interpolated: bool) -> int:
    """Return how many durations are above a limit; those in its bucket in proportion, or not at all."""
    bucket = bisect_left(histogram.bounds, limit)
    if bucket >= len(histogram.bounds):
        return 0
    low, high = (0.0, *histogram.bounds)[bucket], histogram.bounds[bucket]
    part = (
        histogram.counts[bucket] * (high - limit) / (high - low)
        if is_interpolated and high > low
        else 0.0
    )
    return sum(histogram.counts[bucket + 1 :]) + math.floor(part)


# --- texts -------------------------------------------------------------------------------------------------------------


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"


def _seconds(duration: float) -> str:
    return f"{1000 * duration:.3g}ms" if duration < 1 else f"{duration:.3g}s"


def _shown(gate: Gate, value: float) -> str:
    return _percent(value) if gate.metric is Metric.ERROR_RATE else _seconds(value)
