"""The report of a run as tables and JSON, with the events before each violation."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.checker import gaps
from chaos.checker.evidence import Violation
from chaos.checker.gaps import Gap
from chaos.checker.laws import LAWS
from chaos.checker.rest import Unreconciled
from support.laws import jobs

LAST: Final = 50
"""Number of events that are printed before a violation."""
REPORTED: Final = 5
"""Number of violations that are printed with their events. The JSON has all."""
LISTED: Final = 20
"""Number of violations that are repeated in the last lines of the output."""
RULES: Final = tuple(law.name for law in LAWS)


class RunEvent(msgspec.Struct, frozen=True):
    """An event of the run.

    `about` is the namespace and name of a top owner, such as a RayService; empty for an event that
    concerns all objects.
    """

    at: float
    about: str
    text: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. Times are in seconds since the beginning."""

    seed: int
    minutes: float
    replicas: int
    jobs: int
    """Number of RayJobs that users created."""
    faults: int
    changes: int
    drivers: int
    """Number of drivers of Ray jobs that the run started."""
    states: int
    """Number of object states that were judged."""
    writes: int
    """Number of raybus's writes that were judged."""
    against_leases: int
    with_base: int
    autoscaled: int
    machine_percent: float
    """Percent of all processors' time that the machine was busy.

    Near 100, the waits prove little.
    """
    watches: dict[str, int]
    unreconciled: list[Unreconciled]
    gaps: list[Gap]
    violations: list[Violation]
    timeline: list[RunEvent]

    @property
    def is_only_late(self) -> bool:
        """Whether only time limits were broken. An overloaded machine may be the cause of that."""
        return {violation.rule for violation in self.violations} == {gaps.RULE}

    def leading_to(self, violation: Violation) -> list[RunEvent]:
        """Return the last events before a violation that concern the same owner, or all objects."""
        fit = [
            event
            for event in self.timeline
            if event.at <= violation.at + 1 and event.about in {"", violation.about}
        ]
        return fit[-LAST:]


def show(report: Report, console: Console) -> None:
    """Print the report for people."""
    console.print(_build_rules_table(report))
    console.print(_build_gaps_table(report))
    for violation in report.violations[:REPORTED]:
        console.print(
            f"\n{_format_violation(violation)}", highlight=False, markup=False, soft_wrap=True
        )
        for entry in report.leading_to(violation):
            console.print(
                f"  {entry.at:8.2f}  {entry.text}", highlight=False, markup=False, soft_wrap=True
            )
    if report.violations:  # repeated, because only the end of a long log may be kept
        console.print()
        for violation in report.violations[:LISTED]:
            console.print(
                _format_violation(violation), highlight=False, markup=False, soft_wrap=True
            )
        again = (
            f"raybus-dev chaos --seed {report.seed} --minutes {report.minutes:g} --replicas "
            f"{report.replicas} --jobs {report.jobs}"
        )
        console.print(
            f"{len(report.violations)} violations; the same faults and changes again: {again}"
        )


def _format_violation(violation: Violation) -> str:
    return (
        f"VIOLATION at {violation.at:.1f} s: {violation.rule}: {violation.about}: {violation.text}"
    )


def write(report: Report, folder: Path) -> None:
    """Write the report as JSON, and all events as text, into `folder`."""
    lean = msgspec.structs.replace(report, timeline=[])
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(lean)) + b"\n")
    with (folder / "events.txt").open("w") as out:
        out.writelines(
            f"{event.at:9.3f} {event.about or '-'} {event.text}\n" for event in report.timeline
        )


def encode(report: Report) -> str:
    """Return the report as JSON, with the events before the first violations."""
    led = [
        entry
        for violation in report.violations[:REPORTED]
        for entry in report.leading_to(violation)
    ]
    lean = msgspec.structs.replace(report, timeline=led)
    return msgspec.json.format(msgspec.json.encode(lean)).decode()


def _build_rules_table(report: Report) -> Table:
    broken = Counter(violation.rule for violation in report.violations)
    title = (
        f"seed {report.seed}, {report.minutes:g} minutes, up to {report.replicas} replicas: "
        f"{report.faults} faults, "
        f"{report.changes} changes by users, {report.states} states and {report.writes} writes "
        "judged"
    )
    table = Table("rule", "broken", "judged by", title=title, title_justify="left")
    for rule in RULES:
        table.add_row(rule, str(broken[rule]), _describe_basis(rule, report))
    return table


def _describe_basis(rule: str, report: Report) -> str:
    match rule:
        case "every write names its base":
            return f"{report.with_base} updates, patches and deletions"
        case "no write by a fenced owner":
            return f"{report.against_leases} writes, against the Leases at their version"
        case "the autoscaler's pods":
            return f"{report.autoscaled} deletions of workers"
        case _ if rule in {law.name for law in jobs.LAWS}:
            return f"{report.drivers} drivers"
        case gaps.RULE | gaps.STALLED:
            return f"{sum(gap.waits for gap in report.gaps)} changes of probes"
        case _:
            return ""


def _build_gaps_table(report: Report) -> Table:
    title = f"gaps of keys; processors of the machine in use: {report.machine_percent:.0f} %"
    table = Table(
        "while", "changes", "p50", "longest", "by", "allowed", title=title, title_justify="left"
    )
    for row in _list_gap_rows(report):
        table.add_row(*row)
    return table


def _list_gap_rows(report: Report) -> Iterator[tuple[str, ...]]:
    for gap in report.gaps:
        allowed = f"{gap.limit:g} s" if gap.limit is not None else ""
        if gap.over_limit:
            allowed += f", {gap.over_limit} over"
        yield (
            gap.fault,
            str(gap.waits),
            f"{gap.p50:.2f} s",
            f"{gap.longest:.2f} s",
            gap.probe,
            allowed,
        )
