"""Evaluate the gates of an UpgradePolicy: whether an error rate or a latency is within its limit.

A gate is evaluated every second and the upgrade ends at the first failure, so a test for a fixed
number of requests would raise false alarms. The test in `common.upgrade.sequential` is valid at
every moment. The false-alarm budget `ALPHA` of an upgrade is divided among its gates and windows.
The part of a gate is divided between the test of all requests and the tests of each route. For a
limit relative to the active cluster (`maxIncrease`), an upper bound of the active cluster's value
is estimated, which takes half of the budget. Each step begins a new window, since the requests of
earlier steps would hide errors that begin late.

With few requests the bound is loose, so a value below the bound does not prove that the new version
is good. Therefore a gate with `maxIncrease` passes by comparison with the observed value of the
active cluster, not with its bound. One failed request alone does not prevent a pass.

Ray exports durations as histograms. A quantile is interpolated within its bucket. For a limit
relative to the active cluster, the number of requests above the limit is interpolated as well: both
clusters have the same buckets, so equal versions have equal numbers. For an absolute limit, only
buckets that are completely above it count. RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS sets the buckets'
bounds, and so the precision.
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
from common.upgrade.gate_types import MAX_GATES, AnyGate, AskingGate, Gate, Metric

ALPHA: Final = 0.01
"""Maximum probability that the gates fail an upgrade to a version as good as the old one."""


class GateOutcome(StrEnum):
    """The outcome of a gate."""

    PASS = "Pass"  # noqa: S105 - no password
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"
    """Too few requests to pass or to fail. Missing data is neither success nor failure."""


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a gate, with the figures on which it is based."""

    gate: AnyGate
    outcome: GateOutcome
    requests: int = 0
    """Number of requests to the pending cluster in the window."""
    value: float | None = None
    """Measured value: fraction of requests, seconds, or result of a Prometheus query.

    None without requests, and for a webhook.
    """
    limit: float | None = None
    """The limit with which the value was compared.

    None for a webhook, and while the active cluster has too few requests to compute the limit.
    """
    route: str = ALL
    """The route that failed, or `ALL`."""
    text: str


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of both clusters in a time interval that lasts until now.

    The interval began when the weights last changed, or later within the step. The counts are kept
    in memory, so a window begins again after a restart.
    """

    active: Sample
    """Requests of the active cluster; after all traffic has moved, those in the previous step."""
    pending: Sample
    number: int | None = None
    """Position among the windows that began within the step; None for the window of the whole step.

    Later windows get a smaller part of the false-alarm budget.
    """
    recent: tuple["Window", ...] = ()
    """Other windows of the same step, which began later than this one."""


NO_WINDOW: Final = Window(active={}, pending={})


def unanswered(gate: AskingGate, problem: str | None = None) -> GateResult:
    """Return the inconclusive result of a gate without an answer; `problem` says why."""
    text = f"{gate.title}: {gate.host} {problem or 'is asked'}"
    return GateResult(gate=gate, outcome=GateOutcome.INCONCLUSIVE, text=text)


class _Limit(msgspec.Struct, frozen=True, kw_only=True):
    value: float = math.inf
    passes: float = math.inf
    """Highest value with which the gate passes.

    This is the limit itself, or for `maxIncrease` the limit computed from the observed value of the
    active cluster.
    """
    reason: str = ""
    awaits: str | None = None
    """Why no limit can be computed from the active cluster's requests; None if one can be."""


class _Measure(msgspec.Struct, frozen=True, kw_only=True):
    """The measured value of the pending cluster, and the limit with which it is compared."""

    requests: int
    beyond: int
    allowed: float
    """The fraction of requests that may be beyond the limit."""
    value: float
    """Measured value of the pending cluster; 0 without requests."""
    limit: _Limit
    text: str


def evaluate(gate: Gate, active: Sample, pending: Sample, *, windows: int = 1) -> GateResult:
    """Evaluate a gate in one window, over all requests and for each route.

    Return the first result that is a failure, or else the result over all requests. `active` and
    `pending` are the requests of both clusters in the window. `windows` is the number of windows
    among which the false-alarm budget `ALPHA` is divided.
    """
    routes = [route for route in sorted(pending.keys() - {ALL}) if _observed(gate, pending[route])]
    alpha = ALPHA / MAX_GATES / windows
    if len(routes) < 2:  # a single route has all requests
        return _result(gate, ALL, active, pending, alpha)
    whole, share = (
        _result(gate, ALL, active, pending, alpha / 2),
        alpha / 2 / len(active.keys() | pending.keys()),
    )
    return _decisive([whole, *(_result(gate, route, active, pending, share) for route in routes)])


def lowest_found(gate: Gate, requests: int, *, steps: int) -> float | None:
    """Return the lowest error rate with which a gate would fail in 9 of 10 cases, approximately.

    `requests` is the number of requests in a step, and `steps` the number of steps. None if the
    gate has no absolute limit on errors, or if the requests are too few for any failure.
    """
    if gate.metric is not Metric.ERROR_RATE or not gate.max:
        return None
    return sequential.lowest_found(requests, gate.max, ALPHA / MAX_GATES / windows_of(steps))


def within(gate: Gate, window: Window, steps: int) -> GateResult:
    """Evaluate a gate in the window of the whole step and in the later windows within the step.

    Return the first result that is a failure, or else that of the whole step. `steps` is the number
    of steps of the upgrade.
    """
    windows = (window, *window.recent)
    return _decisive(
        [
            evaluate(gate, window.active, window.pending, windows=windows_of(steps, window.number))
            for window in windows
        ]
    )


def windows_of(steps: int, number: int | None = None) -> int:
    """Return the number of windows among which the false-alarm budget of one upgrade is divided.

    `number` is the position of a window within its step, None for the window of the whole step. The
    window of the whole step gets half of the step's budget. The n-th later window gets the part
    1 / (n (n + 1)) of the other half, so that any number of windows stays within the budget.
    """
    return 2 * steps if number is None else 2 * steps * number * (number + 1)


def _decisive(results: Sequence[GateResult]) -> GateResult:
    return next((result for result in results if result.outcome is GateOutcome.FAIL), results[0])


def _observed(gate: Gate, requests: Requests) -> int:
    return requests.total if gate.metric is Metric.ERROR_RATE else _histogram(gate, requests).total


def _histogram(gate: Gate, requests: Requests) -> Histogram:
    return requests.latency if gate.metric is Metric.LATENCY else requests.first_token


def _result(gate: Gate, route: str, active: Sample, pending: Sample, alpha: float) -> GateResult:
    alpha = alpha if gate.max_increase is None else alpha / 2
    measured = _errors if gate.metric is Metric.ERROR_RATE else _durations
    measure = measured(gate, active.get(route, Requests()), pending.get(route, Requests()), alpha)
    outcome, text = _outcome(gate, measure, alpha)
    return GateResult(
        gate=gate,
        outcome=outcome,
        requests=measure.requests,
        value=measure.value if measure.requests else None,
        limit=None if measure.limit.awaits else measure.limit.value,
        route=route,
        text=f"{gate.title}{f' of {route}' if route != ALL else ''}: {text}",
    )


def _outcome(gate: Gate, measure: _Measure, alpha: float) -> tuple[GateOutcome, str]:
    limit, value, is_beyond = measure.limit, measure.value, measure.value > measure.limit.value
    if limit.awaits is not None:
        return GateOutcome.INCONCLUSIVE, limit.awaits
    if is_beyond and sequential.evidence(
        measure.beyond, measure.requests, measure.allowed
    ) > -math.log(alpha):
        return GateOutcome.FAIL, measure.text
    if measure.requests < gate.min_requests:
        return (
            GateOutcome.INCONCLUSIVE,
            f"{measure.requests} of {gate.min_requests} requests observed",
        )
    if value <= limit.passes:
        return GateOutcome.PASS, measure.text
    shown = "" if is_beyond else f" above {_shown(gate, limit.passes)}"
    return GateOutcome.INCONCLUSIVE, f"{measure.text}; too few requests to exclude chance{shown}"


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
        text=f"{errors} of {requests} requests failed ({_percent(value)}), at most "
        f"{_percent(limit.value)} allowed{limit.reason}",
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
        text=f"{shown} in {histogram.total} requests, at most {_seconds(limit.value)} "
        f"allowed{limit.reason}",
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
    """Return an upper confidence bound of a quantile; infinity if it is above the last bucket.

    The histogram must have at least `sequential.requests_for_a_bound` observations.
    """
    total = histogram.total
    ranks = range(math.ceil(quantile * total), total + 1)
    rank = bisect_left(
        ranks, 1, key=lambda below: sequential.is_bound(below, total, quantile, alpha)
    )
    return _quantile(histogram, ranks[rank])


# --- durations by bucket ---


def _quantile(histogram: Histogram, rank: float) -> float:
    """Return the duration with a given rank among all durations, interpolated within its bucket.

    Infinity if it is above the bound of the last bucket.
    """
    below = list(accumulate(histogram.counts, initial=0))
    bucket = max(bisect_left(below, rank) - 1, 0)
    if bucket >= len(histogram.bounds):
        return math.inf
    low, high = (0.0, *histogram.bounds)[bucket], histogram.bounds[bucket]
    count = histogram.counts[bucket]
    return low + (high - low) * (rank - below[bucket]) / count if count else high


def _above(histogram: Histogram, limit: float, *, is_interpolated: bool) -> int:
    """Count the durations above a limit.

    The bucket that contains the limit counts in proportion if `is_interpolated`, otherwise not.
    """
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


# --- texts ---


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"


def _seconds(duration: float) -> str:
    return f"{1000 * duration:.3g}ms" if duration < 1 else f"{duration:.3g}s"


def _shown(gate: Gate, value: float) -> str:
    return _percent(value) if gate.metric is Metric.ERROR_RATE else _seconds(value)
