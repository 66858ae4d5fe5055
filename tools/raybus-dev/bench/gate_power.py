"""Which regression do the gates of an upgrade detect with a probability of 0.9?

The table shows the smallest such regression for each number of requests that the new version has
answered. The simulation has log-normal latencies like those of `tests/e2e/versions`, three steps,
and one evaluation for every 30 requests. The active cluster gets nine requests for each request to
the new cluster. A regression has the same size from the first request on.
"""

import argparse
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from common.ray.request_metrics import Histogram, Requests, Sample
from common.upgrade import gates
from common.upgrade.gate_types import Gate, Metric
from common.upgrade.gates import GateOutcome, windows_of

STEPS: Final = 3
SHARE: Final = 9
"""Requests to the active cluster for each request to the new cluster: a step of 10 percent."""
EVERY: Final = 30
SPREAD: Final = 0.3
FINE: Final = tuple(
    count / 1000 for count in (*range(10, 210, 10), *range(225, 400, 25), 400, 500, 750, 1000, 2000)
)
SERVES: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0, 2.0, 5.0)
WANTED: Final = 0.9
COUNTS: Final = (100, 300, 1000, 3000, 10_000)

Draw = Callable[[random.Random, int, float], Sample]
"""Draws the results of a version's requests.

Arguments: random generator, number of requests, size of the version's regression (0 for none).
"""


def of_errors(rng: random.Random, requests: int, rate: float) -> Sample:
    """Draw results of requests; each request fails with the probability `rate`."""
    return {"": Requests(total=requests, errors=sum(rng.random() < rate for _ in range(requests)))}


def of_latencies(bounds: Sequence[float]) -> Draw:
    """Return a `Draw` of latencies that counts them in histogram buckets with these upper bounds.

    The size of a regression is the fraction by which latencies are longer.
    """

    def draw(rng: random.Random, requests: int, slower: float) -> Sample:
        median = math.log(0.05 * (1 + slower))
        cumulative = [
            (1 + math.erf((math.log(bound) - median) / SPREAD / math.sqrt(2))) / 2
            for bound in bounds
        ]
        counts = [0] * (len(bounds) + 1)
        for _ in range(requests):
            counts[bisect_left(cumulative, rng.random())] += 1
        return {"": Requests(latency=Histogram(tuple(bounds), tuple(counts)))}

    return draw


def total(samples: Sequence[Sample]) -> Sample:
    """Add up samples whose histograms have the same buckets."""
    parts = [sample[""] for sample in samples]
    counts = [sum(column) for column in zip(*(part.latency.counts for part in parts), strict=True)]
    latency = Histogram(parts[0].latency.bounds, tuple(counts))
    return {
        "": Requests(
            total=sum(part.total for part in parts),
            errors=sum(part.errors for part in parts),
            latency=latency,
        )
    }


def is_found(gate: Gate, draw: Draw, worse: float, requests: int, seed: int) -> bool:
    """Simulate one upgrade; return whether the gate fails within `requests` requests.

    `worse` is the size of the new version's regression.
    """
    rng = random.Random(seed)
    active, pending = draw(rng, 0, 0), draw(rng, 0, 0)
    for _ in range(0, requests, EVERY):
        active = total([active, draw(rng, SHARE * EVERY, 0)])
        pending = total([pending, draw(rng, EVERY, worse)])
        if (
            gates.evaluate(gate, active, pending, windows=windows_of(STEPS)).outcome
            is GateOutcome.FAIL
        ):
            return True
    return False


def power(gate: Gate, draw: Draw, worse: float, requests: int, *, runs: int) -> float:
    """Return the fraction of `runs` simulated upgrades in which the gate fails."""
    return sum(is_found(gate, draw, worse, requests, seed) for seed in range(runs)) / runs


def smallest(
    gate: Gate, draw: Draw, among: Sequence[float], requests: int, *, runs: int
) -> float | None:
    """Return the smallest regression that the gate detects with a probability of at least 0.9.

    `among` are the regressions to try, in ascending order. None if the gate detects none of them
    with this probability.
    """
    index = bisect_left(
        among, 1, key=lambda worse: power(gate, draw, worse, requests, runs=runs) >= WANTED
    )
    return among[index] if index < len(among) else None


RATES: Final = (
    0.002,
    0.003,
    0.004,
    0.006,
    0.008,
    0.01,
    0.012,
    0.015,
    0.02,
    0.025,
    0.03,
    0.04,
    0.05,
    0.07,
    0.1,
    0.15,
    0.2,
)
FACTORS: Final = (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.37, 1.6, 2, 2.5, 3, 4)
P95: Final = Gate(metric=Metric.LATENCY, quantile=0.95, max_increase=0.3)
ROWS: Final[dict[str, tuple[Gate, Draw, Sequence[float]]]] = {
    "errors, at most 0.2 %": (Gate(metric=Metric.ERROR_RATE, max=0.002), of_errors, RATES),
    "errors, at most 1 %": (Gate(metric=Metric.ERROR_RATE, max=0.01), of_errors, RATES),
    "p95, at most +30 %, buckets of 10 ms": (P95, of_latencies(FINE), FACTORS),
    "p95, at most +30 %, Serve's buckets": (P95, of_latencies(SERVES), FACTORS),
}


def main() -> None:
    """Print, by gate and number of requests, the smallest regression that the gate detects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60, help="simulated upgrades for each figure")
    options = parser.parse_args()
    print(f"{'gate':<40}" + "".join(f"{count:>9,}" for count in COUNTS))
    for name, (gate, draw, among) in ROWS.items():
        rates = [smallest(gate, draw, among, count, runs=options.runs) for count in COUNTS]
        texts = ["-" if rate is None else f"{100 * rate:.3g} %" for rate in rates]
        print(f"{name:<40}" + "".join(f"{text:>9}" for text in texts), flush=True)


if __name__ == "__main__":
    main()
