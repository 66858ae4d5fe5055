"""The outcome of each request: counts by version and status, latencies by phase. Pure.

A request belongs to the phase in which it started. It failed when it had no answer in time or another status than 200.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

PHASES: Final = ("before", "during", "after")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the load's output; times in seconds, `at` since the epoch."""

    at: float
    seconds: float
    think: float = 0.0
    retries: int = 0
    status: int | None = None
    version: str | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Return whether the request failed for its client."""
        return self.status != 200


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """When the upgrade began and ended, in seconds since the epoch; None when it has not."""

    began: float | None = None
    ended: float | None = None

    def phase(self, at: float) -> str:
        """Return the phase in which a moment lies."""
        if self.began is None or at < self.began:
            return "before"
        return "during" if self.ended is None or at < self.ended else "after"


class PhaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one phase; p50 and p99 in milliseconds, over short requests that were answered."""

    phase: str
    requests: int
    failed: int
    retried: int
    p50_ms: float | None
    p99_ms: float | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All requests."""

    requests: int
    failed: int
    retried: int
    by_answer: dict[str, int]
    """`version 1, status 200` or the kind of failure, to how many."""
    phases: list[PhaseFigures]
    failures: list[str]
    """The first few failures, as text."""


def read(lines: Iterable[str]) -> list[Answer]:
    """Decode the load's output; skip a line that is cut off at the end."""
    answers: list[Answer] = []
    for line in lines:
        try:
            answers.append(msgspec.json.decode(line, type=Answer))
        except msgspec.DecodeError:
            continue
    return answers


def count(answers: Sequence[Answer], window: Window) -> Figures:
    """Return the figures of a run."""
    failures = [answer for answer in answers if answer.failed]
    return Figures(
        requests=len(answers),
        failed=len(failures),
        retried=sum(answer.retries for answer in answers),
        by_answer=dict(sorted(Counter(_describe(answer) for answer in answers).items())),
        phases=[_phase(name, answers, window) for name in PHASES],
        failures=[
            f"{_describe(each)} after {each.seconds:.1f} s ({each.error or each.status})" for each in failures[:5]
        ],
    )


def share(answers: Sequence[Answer], *, since: float) -> dict[str, float]:
    """Return the share of each version among the answers to requests that started since a moment, 0 … 1."""
    recent = Counter(each.version for each in answers if each.at >= since and each.version is not None)
    total = sum(recent.values())
    return {version: number / total for version, number in sorted(recent.items())} if total else {}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the smallest value that `percent` of all values do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def _phase(name: str, answers: Sequence[Answer], window: Window) -> PhaseFigures:
    mine = [answer for answer in answers if window.phase(answer.at) == name]
    short = [1000 * answer.seconds for answer in mine if not answer.failed and answer.think == 0]
    p50, p99 = percentile(short, 50), percentile(short, 99)
    return PhaseFigures(
        phase=name,
        requests=len(mine),
        failed=sum(answer.failed for answer in mine),
        retried=sum(answer.retries for answer in mine),
        p50_ms=None if p50 is None else round(p50, 1),
        p99_ms=None if p99 is None else round(p99, 1),
    )


def _describe(answer: Answer) -> str:
    if answer.error is not None:
        return answer.error.split(":", 1)[0]
    if answer.status != 200:
        return f"status {answer.status}"
    return f"version {answer.version}, status 200"
