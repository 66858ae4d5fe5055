"""The power of the gates: figures of docs/benchmarks.md, with fewer simulated upgrades."""

import pytest

from bench import gate_power
from common.upgrade.gate_types import Gate, Metric
from common.upgrade.gates import lowest_found


@pytest.mark.parametrize(
    ("name", "requests", "found", "missed"),
    [
        ("errors, at most 0.2 %", 300, 0.05, 0.008),
        ("errors, at most 1 %", 1000, 0.05, 0.015),
        ("p95, at most +30 %, buckets of 10 ms", 100, 1.37, 0.35),
        ("p95, at most +30 %, Serve's buckets", 300, 0.8, 0.3),
    ],
)
def test_a_large_regression_is_found_and_a_small_one_needs_more_requests(
    name: str, requests: int, found: float, missed: float
) -> None:
    gate, draw, _ = gate_power.ROWS[name]
    assert gate_power.power(gate, draw, found, requests, runs=20) >= gate_power.WANTED
    assert gate_power.power(gate, draw, missed, requests, runs=20) < gate_power.WANTED


def test_no_regression_is_rarely_found() -> None:
    for gate, draw, _ in gate_power.ROWS.values():
        assert gate_power.power(gate, draw, 0.0, 300, runs=20) == 0


def test_the_smallest_regression_is_none_where_no_one_is_found() -> None:
    gate, draw, _ = gate_power.ROWS["errors, at most 1 %"]
    assert gate_power.smallest(gate, draw, [0.005, 0.01], 100, runs=5) is None
    assert gate_power.smallest(gate, draw, [0.005, 0.9], 100, runs=5) == 0.9


@pytest.mark.parametrize(("limit", "requests"), [(0.01, 100), (0.01, 1000), (0.05, 300)])
def test_the_lowest_rate_that_lint_states_is_found_as_often_as_it_states(
    limit: float, requests: int
) -> None:
    gate = Gate(metric=Metric.ERROR_RATE, max=limit)
    lowest = lowest_found(gate, requests, steps=gate_power.STEPS)
    assert lowest is not None
    assert gate_power.power(gate, gate_power.of_errors, lowest, requests, runs=40) >= 0.8
    assert (
        gate_power.power(gate, gate_power.of_errors, 0.7 * lowest, requests, runs=40)
        < gate_power.WANTED
    )


def test_too_few_requests_find_nothing_and_other_gates_have_no_such_rate() -> None:
    assert lowest_found(Gate(metric=Metric.ERROR_RATE, max=0.5), 5, steps=3) is None
    assert lowest_found(Gate(metric=Metric.ERROR_RATE, max=0.0), 100, steps=3) is None
    assert lowest_found(Gate(metric=Metric.ERROR_RATE, max_increase=0.5), 100, steps=3) is None
    assert lowest_found(gate_power.P95, 100, steps=3) is None
