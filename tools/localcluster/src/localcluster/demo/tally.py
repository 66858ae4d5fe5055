"""Counts the demo's requests by version, status and phase, and formats the result.

A request belongs to the phase in which it started. A request failed if it was not answered in time,
or with another status than 200.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

PHASES: Final = ("before", "during", "after")


class LoadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one request: a line of the load's output.

    `at` is its start in seconds since the epoch; durations are in seconds.
    """

    at: float
    seconds: float
    think: float = 0.0
    retries: int = 0
    status: int | None = None
    version: str | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the client got no answer with status 200."""
        return self.status != 200


class UpgradeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Start and end of the upgrade in seconds since the epoch; None until they are reached."""

    began: float | None = None
    ended: float | None = None

    def find_phase(self, at: float) -> str:
        """Return the phase of a moment: `before`, `during` or `after` the upgrade."""
        if self.began is None or at < self.began:
            return "before"
        return "during" if self.ended is None or at < self.ended else "after"


class PhaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of the requests of one phase of the upgrade.

    p50 and p99 are in milliseconds, of short requests that succeeded.
    """

    phase: str
    requests: int
    failed: int
    retried: int
    p50_ms: float | None
    p99_ms: float | None


class LoadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of all requests of a run."""

    requests: int
    failed: int
    retried: int
    by_answer: dict[str, int]
    """Number of requests by outcome: `version 1, status 200`, or the kind of failure."""
    phases: list[PhaseFigures]
    failures: list[str]
    """Descriptions of the first failures, at most five."""


def read(lines: Iterable[str]) -> list[LoadAnswer]:
    """Decode lines of the load's output. A line that is cut off is skipped."""
    answers: list[LoadAnswer] = []
    for line in lines:
        try:
            answers.append(msgspec.json.decode(line, type=LoadAnswer))
        except msgspec.DecodeError:
            continue
    return answers


def count(answers: Sequence[LoadAnswer], window: UpgradeWindow) -> LoadFigures:
    """Count the requests of a run, in total and for each phase of the upgrade."""
    failures = [answer for answer in answers if answer.failed]
    return LoadFigures(
        requests=len(answers),
        failed=len(failures),
        retried=sum(answer.retries for answer in answers),
        by_answer=dict(sorted(Counter(_describe(answer) for answer in answers).items())),
        phases=[_build_phase(name, answers, window) for name in PHASES],
        failures=[
            f"{_describe(failure)} after {failure.seconds:.1f} s "
            f"({failure.error or failure.status})"
            for failure in failures[:5]
        ],
    )


def compute_shares(answers: Sequence[LoadAnswer], *, since: float) -> dict[str, float]:
    """Return the fraction (0 to 1) of the answers that each version gave.

    Only requests that started at or after `since` (seconds since the epoch) count.
    """
    recent = Counter(
        answer.version for answer in answers if answer.at >= since and answer.version is not None
    )
    total = sum(recent.values())
    return {version: number / total for version, number in sorted(recent.items())} if total else {}


def compute_percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile by the nearest-rank method; None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def _build_phase(name: str, answers: Sequence[LoadAnswer], window: UpgradeWindow) -> PhaseFigures:
    mine = [answer for answer in answers if window.find_phase(answer.at) == name]
    short = [1000 * answer.seconds for answer in mine if not answer.failed and answer.think == 0]
    p50, p99 = compute_percentile(short, 50), compute_percentile(short, 99)
    return PhaseFigures(
        phase=name,
        requests=len(mine),
        failed=sum(answer.failed for answer in mine),
        retried=sum(answer.retries for answer in mine),
        p50_ms=None if p50 is None else round(p50, 1),
        p99_ms=None if p99 is None else round(p99, 1),
    )


def _describe(answer: LoadAnswer) -> str:
    if answer.error is not None:
        return answer.error.split(":", 1)[0]
    if answer.status != 200:
        return f"status {answer.status}"
    return f"version {answer.version}, status 200"


class StepDuration(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the demo and its duration."""

    name: str
    seconds: float


class DemoReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run of the demo."""

    ok: bool
    problem: str | None
    """Why the run did not succeed, apart from failed requests; None if there is no such reason."""
    service: str
    old_cluster: str
    new_cluster: str
    traffic: LoadFigures
    steps: list[StepDuration]
    first_answer_seconds: float | None = None
    """Seconds from the start of the command, including builds, to the first answer of the model."""


def render(receipt: DemoReceipt) -> RenderableType:
    """Format the result of a run as tables for a terminal."""
    return Group(
        _build_step_table(receipt),
        _build_answer_table(receipt),
        _build_phase_table(receipt),
        _format_verdict(receipt),
    )


def _build_step_table(receipt: DemoReceipt) -> Table:
    table = Table("step", "seconds", title="Duration by step", title_justify="left")
    table.columns[1].justify = "right"
    for step in receipt.steps:
        table.add_row(step.name, f"{step.seconds:.1f}")
    return table


def _build_answer_table(receipt: DemoReceipt) -> Table:
    table = Table(
        "answer", "requests", title="Requests by version and status", title_justify="left"
    )
    table.columns[1].justify = "right"
    for answer, number in receipt.traffic.by_answer.items():
        table.add_row(answer, str(number))
    return table


def _build_phase_table(receipt: DemoReceipt) -> Table:
    headings = ("upgrade", "requests", "failed", "retried", "p50 ms", "p99 ms")
    table = Table(*headings, title="Before, during and after the upgrade", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for phase in receipt.traffic.phases:
        figures = (phase.requests, phase.failed, phase.retried, phase.p50_ms, phase.p99_ms)
        table.add_row(phase.phase, *("-" if figure is None else str(figure) for figure in figures))
    return table


def _format_verdict(receipt: DemoReceipt) -> Text:
    traffic = receipt.traffic
    line = (
        f"{traffic.failed} of {traffic.requests} requests failed, {traffic.retried} retried once "
        "on a new connection"
    )
    text = Text(line, style="bold green" if receipt.ok else "bold red")
    for failure in traffic.failures:
        text.append(f"\n  {failure}", style="red")
    if receipt.problem:
        text.append(f"\n  {receipt.problem}", style="red")
    return text
