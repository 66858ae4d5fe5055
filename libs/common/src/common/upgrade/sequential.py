"""Compare a rate with an allowed rate by a test that is valid at every moment.

A rollout is evaluated again and again while requests arrive, and the first failure ends it. So a
test for a fixed number of requests would raise a false alarm sooner or later. Here the evidence is
a likelihood ratio: the probability of the observed count, averaged over all rates by a beta
distribution, divided by its probability at the allowed rate. If the true rate is not above the
allowed one, the probability that the ratio ever exceeds 1/alpha is at most alpha (Ville's
inequality; Robbins' method of mixtures).

The beta distribution has its mean at twice the allowed rate. Regressions below it need more
requests than most upgrades have, and regressions above it are found early with any mean. The rates
that such a ratio does not exclude form a confidence interval that is valid at every moment, too.
"""

import math
from bisect import bisect_left
from functools import lru_cache
from typing import Final

_WEIGHT: Final = 2.0
"""First parameter of the beta distribution; it acts like this many requests beyond the limit."""
_OF_BOUNDS: Final = (0.5, 0.5)
"""Parameters of the beta distribution for confidence bounds: Jeffreys' prior."""
_HALVINGS: Final = 50
_NINE_OF_TEN: Final = 1.2816
"""Standard deviations from the mean of a normal distribution down to its 10th percentile."""


def evidence(beyond: int, total: int, allowed: float) -> float:
    """Return the logarithm of the likelihood ratio against the allowed rate.

    `beyond` of `total` requests are beyond the limit, and `allowed` is the fraction that is
    allowed. The result is 0 if the observed rate is not above the allowed one.
    """
    if beyond <= allowed * total:
        return 0.0
    if allowed <= 0:
        return math.inf
    mean = min(2 * allowed, (1 + allowed) / 2)
    return log_ratio(beyond, total, allowed, (_WEIGHT, _WEIGHT * (1 - mean) / mean))


def log_ratio(count: int, total: int, rate: float, weights: tuple[float, float]) -> float:
    """Return log(likelihood of the mixture / likelihood of `rate`), for a rate between 0 and 1.

    `weights` are the parameters of the beta distribution that mixes the rates.
    """
    return _log_mixture(count, total, weights) - _log_likelihood(count, total, rate)


def _log_mixture(count: int, total: int, weights: tuple[float, float]) -> float:
    a, b = weights
    return _log_beta(a + count, b + total - count) - _log_beta(a, b)


def _log_likelihood(count: int, total: int, rate: float) -> float:
    return count * math.log(rate) + (total - count) * math.log1p(-rate)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def highest_rate(count: int, total: int, alpha: float) -> float:
    """Return the upper confidence bound of a rate, after `count` cases in `total` requests.

    The probability that the bound is too low is at most `alpha`.
    """
    low, high = count / total, 1.0
    least = _log_mixture(count, total, _OF_BOUNDS) + math.log(alpha)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_excluded = middle >= 1 or _log_likelihood(count, total, middle) < least
        low, high = (low, middle) if is_excluded else (middle, high)
    return high


def is_bound(below: int, total: int, quantile: float, alpha: float) -> bool:
    """Return whether a duration is an upper confidence bound of a quantile.

    `below` of `total` observations are below the duration. The probability that the result True is
    wrong is at most `alpha`.
    """
    return below > quantile * total and log_ratio(below, total, quantile, _OF_BOUNDS) > -math.log(
        alpha
    )


@lru_cache(maxsize=1024)
def requests_for_a_bound(quantile: float, alpha: float) -> int:
    """Return the minimum number of observations with which a quantile can have an upper bound."""
    return (
        bisect_left(range(1, 100_000), 1, key=lambda total: is_bound(total, total, quantile, alpha))
        + 1
    )


def lowest_found(total: int, allowed: float, alpha: float) -> float | None:
    """Return approximately the lowest true rate that `total` requests detect in 9 of 10 cases.

    A rate is detected if it is shown to exceed `allowed`. None if the requests are too few for that
    at any rate.
    """
    counts = range(total + 1)
    count = bisect_left(
        counts, -math.log(alpha), key=lambda beyond: evidence(beyond, total, allowed)
    )
    if count > total:
        return None
    low, high = count / total, 1.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        # Approximate the binomial distribution by a normal one.
        least = total * rate - _NINE_OF_TEN * math.sqrt(total * rate * (1 - rate))
        low, high = (low, rate) if least >= count else (rate, high)
    return high
