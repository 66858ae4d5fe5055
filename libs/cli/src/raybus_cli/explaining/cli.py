"""`raybus explain`: options and printed output."""

from collections.abc import Sequence
from datetime import UTC
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import UPGRADE_POLICY
from common.upgrade.policy import Stored
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    StatusTargetArgument,
)
from raybus_cli.explaining import findings, job_findings
from raybus_cli.explaining.findings import Explanation
from raybus_cli.explaining.job_findings import JobExplanation
from raybus_cli.explaining.remedies import BlockingFinding
from raybus_cli.printing import Output, ReportOption
from raybus_cli.reading import job_reader, kinds, reader
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import gates
from raybus_cli.show.phase import ServicePhase

MAX_EVIDENCE: Final = 3
"""Number of evidence lines per finding that are printed without `-o wide`."""


def explain(
    target: StatusTargetArgument,
    output: ReportOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show why a RayService is not ready, or why a RayJob does not start or has failed.

    The causes are listed most likely first, each with evidence and a remedy.
    They are found in pods, nodes, scheduler, images, quotas, Serve and Gateway.
    For a RayCronJob, the causes say why no run starts or why the last run failed.

    Examples:
    $ raybus explain demo
    $ raybus explain demo -n serving -o wide
    $ raybus explain rayjob/train
    """
    access = session.select_access(kubeconfig, context, namespace)
    read = {kinds.JOB: _explain_job, kinds.CRON_JOB: _explain_cron_job}.get(
        target.kind, _explain_service
    )
    explanation = session.run(access, lambda kube: read(kube, access.namespace, target.name))
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(explanation, output)
    elif isinstance(explanation, JobExplanation):
        printing.show(draw_job(explanation, wide=output is Output.WIDE))
    else:
        printing.show(draw(explanation, wide=output is Output.WIDE))


async def _explain_service(kube: KubeClient, namespace: str, name: str) -> Explanation:
    snapshot = await reader.read(kube, namespace, name)
    offered = (
        await reader.read_offered_resources(kube)
        if findings.is_short_of_resources(snapshot.pods)
        else None
    )
    policy = await _read_policy(kube, snapshot)
    return findings.explain(snapshot, now=session.read_clock(), offered=offered, policy=policy)


async def _explain_job(kube: KubeClient, namespace: str, name: str) -> JobExplanation:
    snapshot = await job_reader.read_job(kube, namespace, name)
    is_short = findings.is_short_of_resources((*snapshot.pods, *snapshot.submitters))
    offered = await reader.read_offered_resources(kube) if is_short else None
    return job_findings.explain_job(snapshot, now=session.read_clock(), offered=offered)


async def _explain_cron_job(kube: KubeClient, namespace: str, name: str) -> JobExplanation:
    snapshot = await job_reader.read_cron_job(kube, namespace, name)
    return job_findings.explain_cron_job(snapshot, now=session.read_clock())


async def _read_policy(kube: KubeClient, snapshot: Snapshot) -> Stored | None:
    """Read the stored UpgradePolicy that the upgrade in progress follows.

    None if the upgrade follows no policy, or if the user cannot read it.
    """
    policy = findings.find_followed_policy(snapshot)
    if policy is None:
        return None
    try:
        body = await kube.get(UPGRADE_POLICY, snapshot.service.metadata.namespace, policy.name)
        return msgspec.json.decode(body, type=Stored)
    except (errors.NotFound, errors.Forbidden, msgspec.DecodeError):
        return None


def draw(explanation: Explanation, *, wide: bool = False) -> RenderableType:
    """Format the explanation as text; `wide` adds all evidence and whole tracebacks."""
    head = Text(f"RayService {explanation.namespace}/{explanation.name} is ")
    head.append(
        explanation.phase,
        style="bold green" if explanation.phase is ServicePhase.READY else "bold yellow",
    )
    lines: list[RenderableType] = [head]
    if explanation.message and not explanation.findings:
        lines.append(Text(f"  {explanation.message}"))
    if not explanation.findings:
        calm = explanation.phase is ServicePhase.READY
        lines.append(
            Text(
                "No blocking issues."
                if calm
                else "No blocking issues found; the RayService may still be starting."
            )
        )
    lines += _draw_findings(explanation.findings, wide=wide)
    if explanation.gates is not None:
        since = explanation.gates.since.astimezone(UTC)
        lines.append(
            Text(
                f"Gates at {explanation.gates.weight} percent, since {since:%Y-%m-%dT%H:%M:%SZ}:",
                style="bold",
            )
        )
        lines += [_indent(line) for line in gates.draw(explanation.gates).split("\n")]
    if explanation.policy_edit is not None:
        lines.append(Text(explanation.policy_edit))
    lines += [Text(f"Not readable: {unreadable}", style="dim") for unreadable in explanation.unseen]
    return Group(*lines)


def draw_job(explanation: JobExplanation, *, wide: bool = False) -> RenderableType:
    """Format the explanation of a RayJob or RayCronJob as text; `wide` adds all evidence."""
    style = "bold green" if explanation.has_succeeded else "bold yellow"
    head = Text(f"{explanation.kind} {explanation.namespace}/{explanation.name} is ")
    head.append(explanation.state or "not observed by raybus yet", style=style)
    lines: list[RenderableType] = [head]
    if not explanation.findings:
        lines.append(Text("No blocking issues."))
    lines += _draw_findings(explanation.findings, wide=wide)
    lines += [Text(f"Not readable: {unreadable}", style="dim") for unreadable in explanation.unseen]
    return Group(*lines)


def _draw_findings(findings: Sequence[BlockingFinding], *, wide: bool) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for number, finding in enumerate(findings, start=1):
        lines.append(Text(f"{number}. {finding.message}", style="bold"))
        shown = finding.evidence if wide else finding.evidence[:MAX_EVIDENCE]
        lines += [_indent(Text(line, style="dim")) for line in shown]
        if len(shown) < len(finding.evidence):
            lines.append(
                Text(f"   … and {len(finding.evidence) - len(shown)} more: -o wide", style="dim")
            )
        lines += [
            _indent(Text(f"→ {finding.remedy}")),
            printing.format_command(f"   $ {finding.command}"),
            Text(f"   {finding.anchor}"),
        ]
        lines += [Text(f"   {line}", style="dim") for line in finding.detail.splitlines() if wide]
    return lines


def _indent(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 3), expand=False)
