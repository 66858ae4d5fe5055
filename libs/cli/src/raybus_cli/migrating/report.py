"""The report of `raybus migrate check`: its verdict and its printed form."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import Finding, Level, Subject
from raybus_cli.migrating.switches import Setting
from raybus_cli.printing import Column, Table

READY_CODE: Final = 0
NOT_READY_CODE: Final = 1
UNREAD_CODE: Final = 2


class Verdict(StrEnum):
    """The overall result of the check."""

    READY = "ready"
    """The take-over would change nothing."""
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


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What taking a cluster over from KubeRay would change."""

    verdict: Verdict
    kuberay: list[OperatorSummary]
    raybus: list[OperatorSummary]
    settings: list[Setting]
    """Settings of KubeRay's operator, with their raybus equivalents."""
    environment: dict[str, str]
    """Environment variables that give raybus the same configuration."""
    findings: list[Finding]
    """Findings about the installation as a whole."""
    objects: list[Subject]


def verdict(found: list[Finding], objects: list[Subject]) -> Verdict:
    """Return the verdict for the worst finding."""
    match findings.worst([*found, *(each for held in objects for each in held.findings)]):
        case None | Level.NOTE:
            return Verdict.READY
        case Level.UNREAD:
            return Verdict.UNREAD
        case Level.CHANGE | Level.UNSUPPORTED:
            return Verdict.NOT_READY


CODES: Final = {
    Verdict.READY: READY_CODE,
    Verdict.NOT_READY: NOT_READY_CODE,
    Verdict.UNREAD: UNREAD_CODE,
}


_STYLES = {
    Level.NOTE: "",
    Level.UNREAD: "yellow",
    Level.UNSUPPORTED: "bold red",
    Level.CHANGE: "bold red",
}
_SENTENCES = {
    Verdict.READY: "ready: taking over would change nothing",
    Verdict.NOT_READY: "not ready: see the lines marked 'change' or 'unsupported'",
    Verdict.UNREAD: "unknown: see the lines marked 'unread'",
}

_DONE = "done: KubeRay is not installed, raybus is"


def draw(report: Report, *, wide: bool) -> RenderableType:
    """Format the report as text and tables; notes about single objects are included if `wide`."""
    lines: list[RenderableType] = [
        Text(f"KubeRay: {_operators(report.kuberay)}"),
        Text(f"raybus: {_operators(report.raybus)}"),
    ]
    if report.settings:
        rows = [[each.kuberay, each.value, each.here] for each in report.settings]
        columns = (Column("setting of KubeRay"), Column("value", 1), Column("here"))
        lines += [Text(), Table(columns, rows)]
    if report.environment:
        texts = " ".join(f"{name}={value}" for name, value in sorted(report.environment.items()))
        lines += [Text(), Text(f"raybus has the same configuration with: {texts}")]
    if report.findings:
        lines += [Text(), *_finding_lines(report.findings, "")]
    if report.objects:
        lines += [Text(), _Objects(report, wide)]
    style = "bold green" if report.verdict is Verdict.READY else "bold red"
    is_done = report.verdict is Verdict.READY and not report.kuberay and bool(report.raybus)
    lines += [Text(), Text(_DONE if is_done else _SENTENCES[report.verdict], style=style)]
    return Group(*lines)


def _operators(found: list[OperatorSummary]) -> str:
    texts = [
        f"{each.namespace}/{each.name} {each.version}, {each.ready} of {each.replicas} ready"
        for each in found
    ]
    return "; ".join(texts) or "not installed"


class _Objects(msgspec.Struct, frozen=True):
    """A table of objects, with the findings about an object below its row."""

    report: Report
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
        for each in self.report.objects:
            hidden = len(each.findings) - len(self._shown(each))
            notes = f"{hidden} note(s), see -o wide" if hidden else ""
            rows.append([each.kind, f"{each.namespace}/{each.name}", each.verdict, notes])
        heading, *lines = Table(columns, rows).lines(options.max_width)
        yield Text(heading, style="bold")
        for each, line in zip(self.report.objects, lines, strict=True):
            yield Text(line)
            for found in self._shown(each):
                yield Padding(Text(found.text), (0, 0, 0, 3))
                if found.remedy:
                    yield Padding(Text(f"→ {found.remedy}"), (0, 0, 0, 3))

    def _shown(self, each: Subject) -> list[Finding]:
        return [found for found in each.findings if self.is_wide or found.level is not Level.NOTE]


def _finding_lines(found: Iterable[Finding], indent: str) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for each in found:
        line = Text(indent)
        line.append(f"{each.level:12}", style=_STYLES[each.level])
        line.append(each.text)
        lines.append(line)
        if each.remedy:
            lines.append(Text(f"{indent}            → {each.remedy}"))
    return lines
