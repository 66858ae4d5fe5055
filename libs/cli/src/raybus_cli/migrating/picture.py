"""Prints a report for people."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from raybus_cli.migrating.findings import Finding, Level
from raybus_cli.migrating.report import OperatorSummary, Report, Verdict
from raybus_cli.output import printing

_STYLES = {Level.NOTE: "", Level.UNREAD: "yellow", Level.UNSUPPORTED: "bold red", Level.CHANGE: "bold red"}
_SENTENCES = {
    Verdict.READY: "ready: taking over would change nothing",
    Verdict.NOT_READY: "not ready: see the lines marked 'change' or 'unsupported'",
    Verdict.UNREAD: "unknown: see the lines marked 'unread'",
}

_DONE = "done: KubeRay is not installed, raybus is"


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
        texts = " ".join(f"{name}={value}" for name, value in sorted(report.environment.items()))
        lines += [Text(), Text(f"raybus has the same configuration with: {texts}")]
    if report.findings:
        lines += [Text(), *_finding_lines(report.findings, "")]
    if report.objects:
        lines += [Text(), _objects(report, wide=wide)]
    style = "bold green" if report.verdict is Verdict.READY else "bold red"
    is_done = report.verdict is Verdict.READY and not report.kuberay and bool(report.raybus)
    lines += [Text(), Text(_DONE if is_done else _SENTENCES[report.verdict], style=style)]
    return Group(*lines)


def _operators(found: list[OperatorSummary]) -> str:
    texts = [f"{each.namespace}/{each.name} {each.version}, {each.ready} of {each.replicas} ready" for each in found]
    return "; ".join(texts) or "not installed"


def _objects(report: Report, *, wide: bool) -> RenderableType:
    rows: list[list[str]] = []
    for each in report.objects:
        shown = [found for found in each.findings if wide or found.level is not Level.NOTE]
        hidden = len(each.findings) - len(shown)
        lines = [_line(found) for found in shown] + ([f"{hidden} note(s), see -o wide"] if hidden else [])
        rows.append([each.kind, f"{each.namespace}/{each.name}", each.verdict, "\n".join(lines)])
    return printing.table(("kind", "name", "would change", ""), rows)


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


def _line(found: Finding) -> str:
    return f"{found.text}\n→ {found.remedy}" if found.remedy else found.text
