"""The power of the gates: figures of docs/benchmarks.md, with fewer simulated upgrades."""

import pytest

from bench import gate_power


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
