"""`raybus explain`: options and printed output."""

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
from raybus_cli.arguments import ContextOption, KubeconfigOption, NameArgument, NamespaceOption
from raybus_cli.explaining import findings
from raybus_cli.explaining.findings import Explanation
from raybus_cli.printing import Output, ReportOption
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import gates
from raybus_cli.show.phase import Phase

EVIDENCE: Final = 3
"""Number of evidence lines per finding that are printed without `-o wide`."""


def explain(
    name: NameArgument,
    output: ReportOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show why a RayService is not ready, or why its upgrade is stalled.

    The causes are listed most likely first, each with evidence and a remedy.
    They are found in pods, nodes, scheduler, images, quotas, Serve and Gateway.

    Examples:
    $ raybus explain demo
    $ raybus explain demo -n serving -o wide
    """
    place = session.where(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> Explanation:
        snapshot = await reader.read(kube, place.namespace, name)
        offered = await reader.offered(kube) if findings.lacks_resources(snapshot) else None
        policy = await _policy(kube, snapshot)
        return findings.explain(snapshot, now=session.now(), offered=offered, policy=policy)

    found = session.run(place, work)
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    else:
        printing.show(draw(found, wide=output is Output.WIDE))


async def _policy(kube: KubeClient, snapshot: Snapshot) -> Stored | None:
    """Read the UpgradePolicy that the upgrade in progress follows, as stored now.

    None if the upgrade follows no policy, or if the user cannot read it.
    """
    held = findings.followed(snapshot)
    if held is None:
        return None
    try:
        body = await kube.get(UPGRADE_POLICY, snapshot.service.metadata.namespace, held.name)
        return msgspec.json.decode(body, type=Stored)
    except (errors.NotFound, errors.Forbidden, msgspec.DecodeError):
        return None


def draw(found: Explanation, *, wide: bool = False) -> RenderableType:
    """Format the explanation as text; `wide` adds all evidence and whole tracebacks."""
    head = Text(f"RayService {found.namespace}/{found.name} is ")
    head.append(found.phase, style="bold green" if found.phase is Phase.READY else "bold yellow")
    lines: list[RenderableType] = [head]
    if found.message and not found.findings:
        lines.append(Text(f"  {found.message}"))
    if not found.findings:
        calm = found.phase is Phase.READY
        lines.append(
            Text(
                "No blocking issues."
                if calm
                else "No blocking issues found; the RayService may still be starting."
            )
        )
    for number, each in enumerate(found.findings, start=1):
        lines.append(Text(f"{number}. {each.message}", style="bold"))
        shown = each.evidence if wide else each.evidence[:EVIDENCE]
        lines += [_indented(Text(line, style="dim")) for line in shown]
        if len(shown) < len(each.evidence):
            lines.append(
                Text(f"   … and {len(each.evidence) - len(shown)} more: -o wide", style="dim")
            )
        lines += [
            _indented(Text(f"→ {each.remedy}")),
            printing.command(f"   $ {each.command}"),
            Text(f"   {each.anchor}"),
        ]
        lines += [Text(f"   {line}", style="dim") for line in each.detail.splitlines() if wide]
    if found.gates is not None:
        since = found.gates.since.astimezone(UTC)
        lines.append(
            Text(
                f"Gates at {found.gates.weight} percent, since {since:%Y-%m-%dT%H:%M:%SZ}:",
                style="bold",
            )
        )
        lines += [_indented(each) for each in gates.drawn(found.gates).split("\n")]
    if found.policy_edit is not None:
        lines.append(Text(found.policy_edit))
    lines += [Text(f"Not readable: {each}", style="dim") for each in found.unseen]
    return Group(*lines)


def _indented(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 3), expand=False)
