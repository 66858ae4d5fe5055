"""The report of `raybus migrate check`: its verdict and its printed form."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import MigrationFinding, MigrationLevel, Subject
from raybus_cli.migrating.switches import Setting
from raybus_cli.printing import Column, Table

READY_CODE: Final = 0
NOT_READY_CODE: Final = 1
UNREAD_CODE: Final = 2


class MigrationVerdict(StrEnum):
    """The overall result of the check."""

    READY = "ready"
    """The replacement of KubeRay's operator would change nothing."""
    NOT_READY = "not ready"
    """Something would change or is not supported."""
    UNREAD = "unread"
    """A necessary fact could not be read."""


class OperatorSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An installed operator or service."""

    namespace: str
    name: str
    version: str
    replicas: int
    ready: int


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would change in a Kubernetes cluster if raybus replaced KubeRay's operator."""

    verdict: MigrationVerdict
    kuberay: list[OperatorSummary]
    raybus: list[OperatorSummary]
    settings: list[Setting]
    """Settings of KubeRay's operator, with their raybus equivalents."""
    environment: dict[str, str]
    """Environment variables that give raybus the same configuration."""
    findings: list[MigrationFinding]
    """Findings about the installation as a whole."""
    objects: list[Subject]


def decide_verdict(general: list[MigrationFinding], objects: list[Subject]) -> MigrationVerdict:
    """Return the verdict for the worst finding, either general or about an object."""
    match findings.find_worst(
        [*general, *(finding for subject in objects for finding in subject.findings)]
    ):
        case None | MigrationLevel.NOTE:
            return MigrationVerdict.READY
        case MigrationLevel.UNREAD:
            return MigrationVerdict.UNREAD
        case MigrationLevel.CHANGE | MigrationLevel.UNSUPPORTED:
            return MigrationVerdict.NOT_READY


CODES: Final = {
    MigrationVerdict.READY: READY_CODE,
    MigrationVerdict.NOT_READY: NOT_READY_CODE,
    MigrationVerdict.UNREAD: UNREAD_CODE,
}


_STYLES = {
    MigrationLevel.NOTE: "",
    MigrationLevel.UNREAD: "yellow",
    MigrationLevel.UNSUPPORTED: "bold red",
    MigrationLevel.CHANGE: "bold red",
}
_SENTENCES = {
    MigrationVerdict.READY: "ready: taking over would change nothing",
    MigrationVerdict.NOT_READY: "not ready: see the lines marked 'change' or 'unsupported'",
    MigrationVerdict.UNREAD: "unknown: see the lines marked 'unread'",
}

_DONE = "done: KubeRay is not installed, raybus is"


def draw(report: MigrationReport, *, wide: bool) -> RenderableType:
    """Format the report as text and tables; notes about single objects are included if `wide`."""
    lines: list[RenderableType] = [
        Text(f"KubeRay: {_format_operators(report.kuberay)}"),
        Text(f"raybus: {_format_operators(report.raybus)}"),
    ]
    if report.settings:
        rows = [[setting.kuberay, setting.value, setting.here] for setting in report.settings]
        columns = (Column("setting of KubeRay"), Column("value", 1), Column("here"))
        lines += [Text(), Table(columns, rows)]
    if report.environment:
        texts = " ".join(f"{name}={value}" for name, value in sorted(report.environment.items()))
        lines += [Text(), Text(f"raybus has the same configuration with: {texts}")]
    if report.findings:
        lines += [Text(), *_format_findings(report.findings, "")]
    if report.objects:
        lines += [Text(), _Objects(report, wide)]
    style = "bold green" if report.verdict is MigrationVerdict.READY else "bold red"
    is_done = (
        report.verdict is MigrationVerdict.READY and not report.kuberay and bool(report.raybus)
    )
    lines += [Text(), Text(_DONE if is_done else _SENTENCES[report.verdict], style=style)]
    return Group(*lines)


def _format_operators(operators: list[OperatorSummary]) -> str:
    texts = [
        f"{operator.namespace}/{operator.name} {operator.version}, {operator.ready} of "
        f"{operator.replicas} ready"
        for operator in operators
    ]
    return "; ".join(texts) or "not installed"


class _Objects(msgspec.Struct, frozen=True):
    """A table of objects, with the findings about an object below its row."""

    report: MigrationReport
    is_wide: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        columns = (
            Column("kind"),
            Column("name", keeps_end=True),
            Column("would change"),
            Column("", 1),
        )
        rows: list[list[str]] = []
        for subject in self.report.objects:
            hidden = len(subject.findings) - len(self._select_shown(subject))
            notes = f"{hidden} note(s), see -o wide" if hidden else ""
            rows.append(
                [subject.kind, f"{subject.namespace}/{subject.name}", subject.verdict, notes]
            )
        heading, *lines = Table(columns, rows).format_lines(options.max_width)
        yield Text(heading, style="bold")
        for subject, line in zip(self.report.objects, lines, strict=True):
            yield Text(line)
            for finding in self._select_shown(subject):
                yield Padding(Text(finding.text), (0, 0, 0, 3))
                if finding.remedy:
                    yield Padding(Text(f"→ {finding.remedy}"), (0, 0, 0, 3))

    def _select_shown(self, subject: Subject) -> list[MigrationFinding]:
        return [
            finding
            for finding in subject.findings
            if self.is_wide or finding.level is not MigrationLevel.NOTE
        ]


def _format_findings(findings: Iterable[MigrationFinding], indent: str) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for finding in findings:
        line = Text(indent)
        line.append(f"{finding.level:12}", style=_STYLES[finding.level])
        line.append(finding.text)
        lines.append(line)
        if finding.remedy:
            lines.append(Text(f"{indent}            → {finding.remedy}"))
    return lines
