"""Prints a report for people."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from raybus_cli.migrating.findings import Finding, Level
from raybus_cli.migrating.report import Report, Verdict, Who
from raybus_cli.output import printing

_STYLES = {Level.NOTE: "", Level.UNREAD: "yellow", Level.UNSUPPORTED: "bold red", Level.CHANGE: "bold red"}
_SENTENCES = {
    Verdict.READY: "ready: taking over would change nothing",
    Verdict.NOT_READY: "not ready: see what is marked 'change' or 'unsupported'",
    Verdict.UNREAD: "unknown: see what is marked 'unread'",
}


def draw(report: Report, *, wide: bool) -> RenderableType:
    """Return a report as text and tables; notes about single objects only when `wide`."""
    lines: list[RenderableType] = [
        Text(f"KubeRay: {_operators(report.kuberay)}"),
        Text(f"raybus: {_operators(report.raybus)}"),
    ]
    if report.settings:
        rows = [[each.kuberay, each.value, each.here] for each in report.settings]
        lines += [Text(), printing.table(("setting of KubeRay", "value", "here"), rows)]
    if report.environment:
        said = " ".join(f"{name}={value}" for name, value in sorted(report.environment.items()))
        lines += [Text(), Text(f"raybus decides as this operator does with: {said}")]
    if report.findings:
        lines += [Text(), *_said(report.findings, "")]
    if report.objects:
        lines += [Text(), _objects(report, wide=wide)]
    style = "bold green" if report.verdict is Verdict.READY else "bold red"
    lines += [Text(), Text(_SENTENCES[report.verdict], style=style)]
    return Group(*lines)


def _operators(found: list[Who]) -> str:
    said = [f"{each.namespace}/{each.name} {each.version}, {each.ready} of {each.replicas} ready" for each in found]
    return "; ".join(said) or "not installed"


def _objects(report: Report, *, wide: bool) -> RenderableType:
    rows: list[list[str]] = []
    for each in report.objects:
        told = [found for found in each.findings if wide or found.level is not Level.NOTE]
        hidden = len(each.findings) - len(told)
        words = [_line(found) for found in told] + ([f"{hidden} note(s), see -o wide"] if hidden else [])
        rows.append([each.kind, f"{each.namespace}/{each.name}", each.verdict, "\n".join(words)])
    return printing.table(("kind", "name", "would change", ""), rows)


def _said(found: Iterable[Finding], indent: str) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for each in found:
        line = Text(indent)
        line.append(f"{each.level:12}", style=_STYLES[each.level])
        line.append(each.text)
        lines.append(line)
        if each.remedy:
            lines.append(Text(f"{indent}            → {each.remedy}"))
    return lines


def _line(found: Finding) -> str:
    return f"{found.text}\n→ {found.remedy}" if found.remedy else found.text
