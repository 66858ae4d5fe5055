"""What one upgrade by an UpgradePolicy came to under load: the requests that its version harmed, and when it lost its traffic. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

from common import names
from localcluster.demo import tally
from localcluster.demo.tally import LoadAnswer

from .upgrade_status import Move

HEAD: Final = f"{'case':<40}{'end':<12}{'weight':>7}{'requests':>10}{'harmed':>8}{'harmed %':>10}{'of new':>8}{'s to weight 0':>15}"
MAX_HARMED_SHARE: Final = 0.01
"""Of all requests of a case."""
MAX_WEIGHT: Final = 10
"""Percent of the traffic with which a bad version has to be found."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table."""

    name: str
    end: str
    """`promoted` or `taken back`."""
    cluster: str = ""
    """The new version's."""
    weight: int
    """The largest that the new version had; percent."""
    requests: int
    harmed: int
    of_new: int
    """Answers of the new version."""
    seconds: float | None = None
    """From the first harmed request's end to the route without weight for the new version."""

    def __str__(self) -> str:
        """Return it as a line of the table."""
        seconds = "" if self.seconds is None else f"{self.seconds:.1f}"
        percent = f"{100 * self.harmed / max(1, self.requests):.2f}"
        return (
            f"{self.name:<40}{self.end:<12}{self.weight:>7}{self.requests:>10}{self.harmed:>8}{percent:>10}"
            f"{self.of_new:>8}{seconds:>15}"
        )


def p95_of(answers: Sequence[LoadAnswer]) -> float:
    """Return the time within which 95 % of the short requests are answered; seconds."""
    return (
        tally.compute_percentile(
            [each.seconds for each in answers if not each.failed and each.think == 0], 95
        )
        or 0.0
    )


def p99_of(answers: Sequence[LoadAnswer], since: float, until: float) -> float | None:
    """Return the time within which 99 % of the short requests of a period are answered; milliseconds."""
    found = [
        1000 * each.seconds
        for each in answers
        if not each.failed and each.think == 0 and since <= each.at < until
    ]
    return tally.compute_percentile(found, 99)


def harmed(answers: Sequence[LoadAnswer], *, version: str, slower_than: float) -> list[LoadAnswer]:
    """Return the failed requests, and the new version's that took longer than its gate allows."""
    return [
        each
        for each in answers
        if each.failed or (each.version == version and each.seconds > slower_than)
    ]


def largest_weight(moves: Sequence[Move], cluster: str) -> int:
    """Return the largest share of the traffic that a cluster had; percent."""
    return max((each.weights.get(names.serve_service(cluster), 0) for each in moves), default=0)


def taken_back_at(moves: Sequence[Move], cluster: str) -> float | None:
    """Return when a cluster lost the last of its traffic; None if it had none or has some."""
    weights = [(each.at, each.weights.get(names.serve_service(cluster), 0)) for each in moves]
    last = max((index for index, (_, weight) in enumerate(weights) if weight > 0), default=None)
    return None if last is None or last + 1 == len(weights) else weights[last + 1][0]
