"""Gates: results that pass or fail, how soon a worse version is detected, and how rarely an equal
one fails.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ray.request_metrics import Histogram, Requests, Sample
from common.upgrade import gates, sequential
from common.upgrade.gate_types import Gate, Metric
from common.upgrade.gates import GateOutcome, GateResult, evaluate
from support.tables import cases

Verdict = tuple[GateOutcome, str]
MILLISECONDS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10000, 60000, 120000),
    *(300000, 600000),
)
BOUNDS = tuple(each / 1000 for each in MILLISECONDS)
"""Bucket limits of Serve's latencies in seconds, unless its user sets others."""
RATE = Gate(metric=Metric.ERROR_RATE, max=0.01)
RATE_GROWTH = Gate(metric=Metric.ERROR_RATE, max_increase=0.3)
LATENCY = Gate(metric=Metric.LATENCY, quantile=0.95, max=0.3)
LATENCY_GROWTH = Gate(metric=Metric.LATENCY, quantile=0.95, max_increase=0.3)
TOKEN = Gate(metric=Metric.TIME_TO_FIRST_TOKEN, quantile=0.5, max=0.3)
NOTHING: Sample = {"": Requests()}


def errors(count: int, total: int, **routes: tuple[int, int]) -> Sample:
    return {
        "": Requests(total=total, errors=count),
        **{
            f"/{route}": Requests(total=all_, errors=some) for route, (some, all_) in routes.items()
        },
    }


def histogram(*buckets: tuple[int, int]) -> Histogram:
    """Build a histogram of Serve from pairs of a bucket limit in milliseconds and a count; 0 is the
    bucket above all limits.
    """
    counts = [0] * (len(BOUNDS) + 1)
    for bound, count in buckets:
        counts[MILLISECONDS.index(bound) if bound else len(BOUNDS)] = count
    return Histogram(BOUNDS, tuple(counts))


def latencies(*buckets: tuple[int, int]) -> Sample:
    return {"": Requests(latency=histogram(*buckets))}


def passes(text: str) -> Verdict:
    return GateOutcome.PASS, text


def fails(text: str) -> Verdict:
    return GateOutcome.FAIL, text


def inconclusive(text: str) -> Verdict:
    return GateOutcome.INCONCLUSIVE, text


def outcome(gate: Gate, active: Sample, pending: Sample) -> Verdict:
    found = evaluate(gate, active, pending)
    return found.outcome, found.text


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "total", "expected"),
    [
        (0, 0, inconclusive("errorRate: 0 of 100 requests observed")),
        (0, 43, inconclusive("errorRate: 43 of 100 requests observed")),
        (0, 100, passes("errorRate: 0 of 100 requests failed (0%), at most 1% allowed")),
        (1, 100, passes("errorRate: 1 of 100 requests failed (1%), at most 1% allowed")),
        (
            2,
            100,
            inconclusive(
                "errorRate: 2 of 100 requests failed (2%), at most 1% allowed; "
                "too few requests to exclude chance"
            ),
        ),
        (20, 212, fails("errorRate: 20 of 212 requests failed (9.43%), at most 1% allowed")),
        (6, 6, fails("errorRate: 6 of 6 requests failed (100%), at most 1% allowed")),
        (2, 2, inconclusive("errorRate: 2 of 100 requests observed")),
        (9, 7, fails("errorRate: 7 of 7 requests failed (100%), at most 1% allowed")),
    ],
)
def test_an_error_rate_against_a_limit(count: int, total: int, expected: Verdict) -> None:
    assert outcome(RATE, NOTHING, errors(count, total)) == expected


def test_of_several_windows_each_has_a_part_of_the_probability_of_a_false_alarm() -> None:
    alone, shared = (
        {
            each
            for each in range(40)
            if evaluate(RATE, NOTHING, errors(each, 400), windows=windows).outcome
            is GateOutcome.FAIL
        }
        for windows in (1, 5)
    )
    assert shared < alone


def test_a_result_has_the_figures() -> None:
    found = evaluate(RATE, NOTHING, errors(2, 200))
    assert found == GateResult(
        gate=RATE,
        outcome=GateOutcome.PASS,
        requests=200,
        value=0.01,
        limit=0.01,
        route="",
        text="errorRate: 2 of 200 requests failed (1%), at most 1% allowed",
    )
    assert evaluate(RATE_GROWTH, NOTHING, NOTHING).limit is None


def test_where_no_error_is_allowed_the_first_one_fails_and_where_all_are_none_does() -> None:
    none, every = (Gate(metric=Metric.ERROR_RATE, max=limit) for limit in (0.0, 1.0))
    assert evaluate(none, NOTHING, errors(1, 1)).outcome is GateOutcome.FAIL
    assert evaluate(none, NOTHING, errors(0, 100)).outcome is GateOutcome.PASS
    assert evaluate(every, NOTHING, errors(500, 500)).outcome is GateOutcome.PASS


@pytest.mark.parametrize(
    ("active", "pending", "expected"),
    [
        (
            errors(0, 99),
            errors(0, 500),
            inconclusive("errorRate: 99 of 100 requests of the active cluster observed"),
        ),
        (
            errors(0, 99),
            errors(500, 500),
            inconclusive("errorRate: 99 of 100 requests of the active cluster observed"),
        ),
        (errors(10, 1000), errors(0, 99), inconclusive("errorRate: 99 of 100 requests observed")),
        (
            errors(10, 1000),
            errors(3, 100),
            inconclusive(
                "errorRate: 3 of 100 requests failed (3%), at most 4.28% allowed "
                "(30% above the active cluster's, which is at most 3.29%); "
                "too few requests to exclude chance above 1.3%"
            ),
        ),
        (
            errors(10, 1000),
            errors(1, 100),
            passes(
                "errorRate: 1 of 100 requests failed (1%), at most 4.28% allowed "
                "(30% above the active cluster's, which is at most 3.29%)"
            ),
        ),
        (
            errors(10, 1000),
            errors(6, 100),
            inconclusive(
                "errorRate: 6 of 100 requests failed (6%), at most 4.28% allowed "
                "(30% above the active cluster's, which is at most 3.29%); "
                "too few requests to exclude chance"
            ),
        ),
        (
            errors(0, 1000),
            errors(1, 1000),
            passes(
                "errorRate: 1 of 1000 requests failed (0.1%), at most 1.5% allowed "
                "(30% above the active cluster's, which is at most 1.16%)"
            ),
        ),
        (
            errors(10, 1000),
            errors(200, 1000),
            fails(
                "errorRate: 200 of 1000 requests failed (20%), at most 4.28% allowed "
                "(30% above the active cluster's, which is at most 3.29%)"
            ),
        ),
        (
            errors(100, 100),
            errors(100, 100),
            passes(
                "errorRate: 100 of 100 requests failed (100%), at most 100% allowed "
                "(30% above the active cluster's, which is at most 100%)"
            ),
        ),
    ],
)
def test_an_error_rate_against_the_active_cluster(
    active: Sample, pending: Sample, expected: Verdict
) -> None:
    assert outcome(RATE_GROWTH, active, pending) == expected


def test_a_route_fails_by_itself_though_all_requests_pass() -> None:
    pending = errors(30, 10_000, good=(0, 9_900), bad=(30, 100))
    found = evaluate(RATE, NOTHING, pending)
    assert (found.outcome, found.route) == (GateOutcome.FAIL, "/bad")
    assert found.text == "errorRate of /bad: 30 of 100 requests failed (30%), at most 1% allowed"


def test_a_route_that_does_not_fail_leaves_the_outcome_to_all_requests() -> None:
    found = evaluate(RATE, NOTHING, errors(3, 10_000, good=(0, 9_950), odd=(3, 50)))
    assert (found.outcome, found.route) == (GateOutcome.PASS, "")


def test_all_requests_fail_before_a_route_does() -> None:
    assert evaluate(RATE, NOTHING, errors(60, 200, a=(30, 100), b=(30, 100))).route == ""


def test_a_single_route_is_all_requests() -> None:
    assert evaluate(RATE, NOTHING, errors(100, 100, only=(100, 100))).route == ""


def test_a_route_is_compared_with_the_same_route() -> None:
    active = errors(1000, 11_000, flaky=(1000, 1000), good=(0, 10_000))
    assert (
        evaluate(RATE_GROWTH, active, errors(200, 2200, flaky=(200, 200), good=(0, 2000))).outcome
        is GateOutcome.PASS
    )
    moved = evaluate(RATE_GROWTH, active, errors(200, 12_200, flaky=(0, 10_200), good=(200, 2000)))
    assert (moved.outcome, moved.route) == (GateOutcome.FAIL, "/good")


# --- durations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pending", "expected"),
    [
        (latencies(), inconclusive("latencyP95: 0 of 100 requests observed")),
        (latencies((200, 99)), inconclusive("latencyP95: 99 of 100 requests observed")),
        (
            latencies((200, 95), (500, 5)),
            passes("latencyP95: 200ms in 100 requests, at most 300ms allowed"),
        ),
        (latencies((300, 100)), passes("latencyP95: 295ms in 100 requests, at most 300ms allowed")),
        (
            latencies((200, 94), (400, 6)),
            inconclusive(
                "latencyP95: 317ms in 100 requests, at most 300ms allowed; "
                "too few requests to exclude chance"
            ),
        ),
        (
            latencies((200, 60), (500, 40)),
            fails("latencyP95: 488ms in 100 requests, at most 300ms allowed"),
        ),
        (
            latencies((200, 60), (0, 40)),
            fails("latencyP95: more than 600s in 100 requests, at most 300ms allowed"),
        ),
    ],
)
def test_a_latency_against_a_limit(pending: Sample, expected: Verdict) -> None:
    assert outcome(LATENCY, NOTHING, pending) == expected


def test_within_the_bucket_of_an_absolute_limit_no_request_counts_as_above_it() -> None:
    limit = Gate(metric=Metric.LATENCY, quantile=0.95, max=0.25)
    assert evaluate(limit, NOTHING, latencies((300, 10_000))).outcome is GateOutcome.INCONCLUSIVE
    assert (
        evaluate(limit, NOTHING, latencies((300, 5_000), (400, 5_000))).outcome is GateOutcome.FAIL
    )


def test_beyond_the_last_bound_nothing_is_known() -> None:
    limit = Gate(metric=Metric.LATENCY, quantile=0.95, max=3600)
    assert evaluate(limit, NOTHING, latencies((0, 1000))).outcome is GateOutcome.INCONCLUSIVE
    assert evaluate(limit, NOTHING, latencies((60000, 1000))).outcome is GateOutcome.PASS


@pytest.mark.parametrize(
    ("active", "pending", "expected"),
    [
        (
            latencies((200, 150)),
            latencies((200, 500)),
            inconclusive("latencyP95: 150 of 212 requests of the active cluster observed"),
        ),
        (
            latencies((200, 1000)),
            latencies((200, 100)),
            passes(
                "latencyP95: 195ms in 100 requests, at most 257ms allowed "
                "(30% above the active cluster's, which is at most 198ms)"
            ),
        ),
        (
            latencies((200, 1000)),
            latencies((500, 100)),
            fails(
                "latencyP95: 495ms in 100 requests, at most 257ms allowed "
                "(30% above the active cluster's, which is at most 198ms)"
            ),
        ),
        (
            latencies((0, 1000)),
            latencies((0, 100)),
            inconclusive(
                "latencyP95: the active cluster's value may be above 600s, its last bucket's bound"
            ),
        ),
        (
            latencies((200, 1000)),
            {"": Requests(latency=Histogram((0.1,), (0, 1000)))},
            inconclusive(
                "latencyP95: the clusters measure durations in different buckets; "
                "set RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS to the same bounds"
            ),
        ),
        (latencies((200, 1000)), NOTHING, inconclusive("latencyP95: 0 of 100 requests observed")),
    ],
)
def test_a_latency_against_the_active_cluster(
    active: Sample, pending: Sample, expected: Verdict
) -> None:
    assert outcome(LATENCY_GROWTH, active, pending) == expected


def test_within_a_loose_bound_of_few_requests_a_gate_by_growth_does_not_pass() -> None:
    active, slower = latencies((100, 240), (200, 13)), latencies((200, 108), (300, 12))
    found = evaluate(LATENCY_GROWTH, active, slower)
    assert found.outcome is GateOutcome.INCONCLUSIVE
    assert found.limit is not None
    assert found.value is not None
    assert found.value <= found.limit, "it is not above the bound, either"
    assert found.text.endswith("; too few requests to exclude chance above 133ms")


def test_of_a_limit_within_a_bucket_the_requests_above_it_are_interpolated() -> None:
    active = latencies((200, 900), (1000, 100))
    assert (
        evaluate(LATENCY_GROWTH, active, latencies((200, 900), (1000, 100))).outcome
        is GateOutcome.PASS
    )
    assert (
        evaluate(LATENCY_GROWTH, active, latencies((200, 500), (2000, 500))).outcome
        is GateOutcome.FAIL
    )


def test_the_part_of_a_bucket_above_the_limit_is_in_proportion() -> None:
    active = latencies(
        (500, 10_000)
    )  # so the limit is 649 ms, and 70 % of the bucket up to 1 s are above it
    assert (
        evaluate(LATENCY_GROWTH, active, latencies((200, 8_800), (1000, 1_200))).outcome
        is GateOutcome.FAIL
    )
    assert (
        evaluate(LATENCY_GROWTH, active, latencies((200, 9_400), (1000, 600))).outcome
        is GateOutcome.PASS
    )


def test_the_fewest_requests_of_the_active_cluster_are_enough() -> None:
    fewest, fewer = (
        evaluate(LATENCY_GROWTH, latencies((200, count)), latencies((200, 100)))
        for count in (212, 211)
    )
    assert (fewest.outcome, fewer.outcome) == (GateOutcome.PASS, GateOutcome.INCONCLUSIVE)
    assert fewest.text.endswith(
        "at most 260ms allowed (30% above the active cluster's, which is at most 200ms)"
    )


def test_a_second_is_written_as_one() -> None:
    one = Gate(metric=Metric.LATENCY, quantile=0.5, max=1.0)
    assert evaluate(one, NOTHING, latencies((500, 100))).text.endswith("at most 1s allowed")


def test_a_bound_of_nothing_divides_by_nothing() -> None:
    zero = {"": Requests(latency=Histogram((0.0, 1.0), (1000, 0, 0)))}
    assert evaluate(LATENCY_GROWTH, zero, zero).outcome is GateOutcome.PASS


def test_the_first_token_has_its_own_histogram() -> None:
    slow = {"": Requests(latency=histogram((1, 1000)), first_token=histogram((500, 1000)))}
    assert evaluate(TOKEN, NOTHING, slow).outcome is GateOutcome.FAIL
    assert (
        evaluate(TOKEN, NOTHING, {"": Requests(latency=histogram((500, 1000)))}).outcome
        is GateOutcome.INCONCLUSIVE
    )


def test_a_slow_route_fails_by_itself() -> None:
    pending = {
        "": Requests(latency=histogram((100, 9_800), (2000, 200))),
        "/fast": Requests(latency=histogram((100, 9_800))),
        "/slow": Requests(latency=histogram((2000, 200))),
    }
    found = evaluate(LATENCY, NOTHING, pending)
    assert (found.outcome, found.route) == (GateOutcome.FAIL, "/slow")


# --- any numbers ----------------------------------------------------------------------------------

COUNTS = st.integers(0, 10**12) | st.integers(0, 300)


@st.composite
def any_requests(draw: st.DrawFn) -> Requests:
    counts = (draw(COUNTS), draw(COUNTS), draw(COUNTS))
    durations = Histogram((0.1, 0.5), counts)
    return Requests(
        total=draw(COUNTS), errors=draw(COUNTS), latency=durations, first_token=durations
    )


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    routes = draw(st.sets(st.sampled_from(["/a", "/b", "…"])))
    return {route: draw(any_requests()) for route in ("", *routes)}


@st.composite
def any_gate(draw: st.DrawFn) -> Gate:
    metric = draw(st.sampled_from(Metric))
    quantile = None if metric is Metric.ERROR_RATE else 0.95
    limit, is_growth = draw(st.sampled_from([0.0, 0.001, 0.3, 1.0, 10.0])), draw(st.booleans())
    if is_growth:
        return Gate(metric=metric, quantile=quantile, max_increase=limit)
    return Gate(
        metric=metric, quantile=quantile, max=min(limit, 1.0) if quantile is None else limit
    )


@given(any_gate(), samples(), samples())
def test_any_numbers_have_an_outcome(gate: Gate, active: Sample, pending: Sample) -> None:
    found = evaluate(gate, active, pending)
    assert found.text.startswith(gate.title)
    if found.outcome is not GateOutcome.INCONCLUSIVE:
        assert found.value is not None
        assert found.limit is not None
        assert (found.value > found.limit) == (found.outcome is GateOutcome.FAIL)
    if found.outcome is GateOutcome.PASS:
        assert found.requests >= gate.min_requests


@given(st.integers(0, 400), st.integers(1, 400), st.integers(0, 50))
def test_more_errors_never_turn_a_failure_into_success(count: int, total: int, more: int) -> None:
    order = [GateOutcome.PASS, GateOutcome.INCONCLUSIVE, GateOutcome.FAIL]
    fewer, others = (
        evaluate(RATE, NOTHING, errors(min(each, total), total)) for each in (count, count + more)
    )
    assert order.index(fewer.outcome) <= order.index(others.outcome) or total < RATE.min_requests


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "weights"), [(0.01, (2.0, 98.0)), (0.05, (0.5, 0.5)), (0.5, (2.0, 0.67))]
)
def test_the_expected_likelihood_ratio_at_the_rate_itself_is_one(
    rate: float, weights: tuple[float, float]
) -> None:
    total = 300
    expected = sum(
        math.exp(
            math.log(math.comb(total, count))
            + count * math.log(rate)
            + (total - count) * math.log(1 - rate)
            + sequential.log_ratio(count, total, rate, weights)
        )
        for count in range(total + 1)
    )
    assert expected == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("beyond", "total", "allowed", "mean"),
    [(30, 1000, 0.01, 0.02), (90, 1000, 0.05, 0.1), (560, 1000, 0.5, 0.75)],
)
def test_the_evidence_is_that_of_rates_about_twice_the_allowed_one(
    beyond: int, total: int, allowed: float, mean: float
) -> None:
    a, b = 2.0, 2.0 * (1 - mean) / mean
    grid = [(each + 0.5) / 20_000 for each in range(20_000)]
    weights = [rate ** (a - 1) * (1 - rate) ** (b - 1) for rate in grid]
    ratios = [
        (rate / allowed) ** beyond * ((1 - rate) / (1 - allowed)) ** (total - beyond)
        for rate in grid
    ]
    mixture = sum(weight * ratio for weight, ratio in zip(weights, ratios, strict=True)) / sum(
        weights
    )
    assert sequential.evidence(beyond, total, allowed) == pytest.approx(math.log(mixture), rel=1e-3)


def test_exactly_at_the_limit_the_probability_of_a_failure_in_3000_requests_is_below_alpha() -> (
    None
):
    alpha, allowed = gates.ALPHA / 10, 0.01
    alive, failed = {0: 1.0}, 0.0
    for total in range(1, 3001):  # the exact distribution of errors without a failure so far
        following: dict[int, float] = {}
        for count, mass in alive.items():
            following[count] = following.get(count, 0) + mass * (1 - allowed)
            following[count + 1] = following.get(count + 1, 0) + mass * allowed
        alive = {count: mass for count, mass in following.items() if mass > 1e-15}
        for count in [each for each in alive if each > total * allowed and _fails(each, total)]:
            failed += alive.pop(count)
    assert alpha / 10 < failed < alpha


def _fails(count: int, total: int) -> bool:
    return evaluate(RATE, NOTHING, errors(count, total)).outcome is GateOutcome.FAIL


def test_a_quantile_is_bounded_only_by_enough_requests() -> None:
    needed = [
        sequential.requests_for_a_bound(quantile, 0.0005) for quantile in (0.5, 0.9, 0.95, 0.99)
    ]
    assert needed == [14, 100, 212, 1165]


class Version:
    """The requests of a version at a given rate, with log-normal latencies and independent
    errors.
    """

    def __init__(self, rng: random.Random, *, median: float, errors: float) -> None:
        self._rng, self._errors = rng, errors
        cumulative = [
            0.5 * (1 + math.erf(math.log(bound / median) / 0.5 / math.sqrt(2))) for bound in BOUNDS
        ]
        self._buckets = (*cumulative, 1.0)
        self.total = self._failed = 0
        self._counts = [0] * (len(BOUNDS) + 1)

    def serve(self, requests: int) -> None:
        self.total += requests
        for _ in range(requests):
            self._failed += self._rng.random() < self._errors
            self._counts[bisect_left(self._buckets, self._rng.random())] += 1

    def sample(self) -> Sample:
        histogram = Histogram(BOUNDS, tuple(self._counts))
        return {"": Requests(total=self.total, errors=self._failed, latency=histogram)}


class Change(NamedTuple):
    """The way in which the pending version is worse."""

    slower: float = 1.0
    more_errors: float = 0.0


def requests_until_a_failure(
    seed: int, policy: Sequence[Gate], change: Change, *, seconds: int, rate: int
) -> int | None:
    """Simulate an upgrade with an evaluation each second; return the number of the pending
    cluster's requests until a gate failed.
    """
    rng = random.Random(seed)
    median, share = rng.choice((0.03, 0.08, 0.15, 0.4, 0.9, 3)), rng.choice((1, 2))
    active = Version(rng, median=median, errors=0.01)
    pending = Version(rng, median=median * change.slower, errors=0.01 + change.more_errors)
    for _ in range(seconds):
        active.serve(rate * share)
        pending.serve(rate)
        if any(
            evaluate(each, active.sample(), pending.sample()).outcome is GateOutcome.FAIL
            for each in policy
        ):
            return pending.total
    return None


@cases(
    ("gate", "change", "within"),
    {
        "a p95 of +137 % with +30 % allowed": (LATENCY_GROWTH, Change(slower=2.37), 2_500),
        "2 % errors with 1 % allowed": (RATE, Change(more_errors=0.01), 7_000),
        "5 % errors with 1 % allowed": (RATE, Change(more_errors=0.04), 1_000),
        "errors alone with 1 % allowed": (RATE, Change(more_errors=0.99), 20),
        "10 % errors with 1.3 % allowed by growth": (RATE_GROWTH, Change(more_errors=0.09), 1_500),
    },
)
def test_a_worse_version_is_caught_within_so_many_requests(
    gate: Gate, change: Change, within: int
) -> None:
    step = 20 if within > 100 else 1
    found = [
        requests_until_a_failure(seed, [gate], change, seconds=within // step, rate=step)
        for seed in range(25)
    ]
    assert None not in found


@pytest.mark.parametrize("gate", [LATENCY_GROWTH, RATE_GROWTH])
def test_at_no_moment_a_much_worse_version_passes_by_growth_and_an_equal_one_soon_does(
    gate: Gate,
) -> None:
    worse, equal = (
        [first_pass(seed, gate, each) for seed in range(25)]
        for each in (Change(slower=2.37, more_errors=0.05), Change())
    )
    assert sum(each is not None for each in worse) <= 1
    assert sum(each is not None and each <= 300 for each in equal) >= 20


def first_pass(seed: int, gate: Gate, change: Change) -> int | None:
    """Return the number of the pending cluster's requests until the gate passes, at 10 percent of
    the traffic; None if it fails first or 600 requests were answered.
    """
    rng = random.Random(seed)
    active = Version(rng, median=0.08, errors=0.01)
    pending = Version(rng, median=0.08 * change.slower, errors=0.01 + change.more_errors)
    for _ in range(120):
        active.serve(45)
        pending.serve(5)
        outcome = evaluate(gate, active.sample(), pending.sample()).outcome
        if outcome is not GateOutcome.INCONCLUSIVE:
            return pending.total if outcome is GateOutcome.PASS else None
    return None


EQUAL = (
    RATE,
    Gate(metric=Metric.ERROR_RATE, max_increase=0),
    Gate(metric=Metric.LATENCY, quantile=0.95, max_increase=0),
)
"""The strictest gates that an equal version meets: at the limit, and with no growth allowed."""


@pytest.mark.parametrize("upgrades", [100, pytest.param(2_000, marks=pytest.mark.long)])
def test_of_upgrades_to_an_equal_version_at_most_one_in_a_hundred_fails(upgrades: int) -> None:
    found = [
        requests_until_a_failure(seed, EQUAL, Change(), seconds=40, rate=5)
        for seed in range(upgrades)
    ]
    assert sum(each is not None for each in found) <= upgrades * gates.ALPHA
