"""The result of a run, as data (`-o json`) and as tables."""

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raybus_cli.demo.tally import Figures


class StepDuration(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the run and how long it took."""

    name: str
    seconds: float


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    ok: bool
    problem: str | None
    """Why the run did not count, other than failed requests."""
    service: str
    old_cluster: str
    new_cluster: str
    traffic: Figures
    steps: list[StepDuration]
    first_answer_seconds: float | None = None
    """From the start of the command, builds included, to the first answer of the model."""


def render(receipt: Receipt) -> RenderableType:
    """Return the tables that a person reads."""
    return Group(_steps(receipt), _answers(receipt), _phases(receipt), _verdict(receipt))


def _steps(receipt: Receipt) -> Table:
    table = Table("step", "seconds", title="Duration by step", title_justify="left")
    table.columns[1].justify = "right"
    for step in receipt.steps:
        table.add_row(step.name, f"{step.seconds:.1f}")
    return table


def _answers(receipt: Receipt) -> Table:
    table = Table("answer", "requests", title="Requests by version and status", title_justify="left")
    table.columns[1].justify = "right"
    for answer, number in receipt.traffic.by_answer.items():
        table.add_row(answer, str(number))
    return table


def _phases(receipt: Receipt) -> Table:
    headings = ("upgrade", "requests", "failed", "retried", "p50 ms", "p99 ms")
    table = Table(*headings, title="Before, during and after the upgrade", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for phase in receipt.traffic.phases:
        figures = (phase.requests, phase.failed, phase.retried, phase.p50_ms, phase.p99_ms)
        table.add_row(phase.phase, *("-" if each is None else str(each) for each in figures))
    return table


def _verdict(receipt: Receipt) -> Text:
    traffic = receipt.traffic
    line = f"{traffic.failed} of {traffic.requests} requests failed, {traffic.retried} retried once on a new connection"
    text = Text(line, style="bold green" if receipt.ok else "bold red")
    for failure in traffic.failures:
        text.append(f"\n  {failure}", style="red")
    if receipt.problem:
        text.append(f"\n  {receipt.problem}", style="red")
    return text
