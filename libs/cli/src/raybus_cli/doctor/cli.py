"""`raybus doctor`: reads, checks, prints; exit code 1 when a check failed."""

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from common.kube.client import KubeClient
from raybus_cli.access import session
from raybus_cli.access.kubeconfig import ContextOption, KubeconfigOption, RaybusNamespaceOption
from raybus_cli.doctor import checks, survey
from raybus_cli.doctor.checks import Check, CheckState
from raybus_cli.output import printing
from raybus_cli.output.printing import Output, ReportOption

_STYLES: Final = {
    CheckState.OK: "green",
    CheckState.WARNING: "yellow",
    CheckState.FAILED: "bold red",
    CheckState.UNKNOWN: "dim",
}


def doctor(
    raybus_namespace: RaybusNamespaceOption = "raybus",
    output: ReportOption = Output.TEXT,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Check an installation: CRDs, services, leader, partitions, NATS and its certificate, Gateway API, rights, versions.

    Exit code 1 when a check failed. What you may not read is unknown, not failed. Example: raybus doctor -o json
    """
    place = session.where(kubeconfig, context, None)

    async def work(kube: KubeClient) -> list[Check]:
        return checks.all_of(await survey.survey(kube, raybus_namespace), now=session.now())

    found = session.run(place, work)
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    else:
        printing.show(draw(found))
    raise SystemExit(1 if any(each.state is CheckState.FAILED for each in found) else 0)


def draw(found: Iterable[Check]) -> RenderableType:
    """Return the checks for people."""
    lines: list[RenderableType] = []
    for each in found:
        line = Text()
        line.append(f"{each.state:8}", style=_STYLES[each.state])
        line.append(f"{each.name}: {each.text}")
        lines.append(line)
        if each.remedy:
            lines.append(Text(f"        → {each.remedy}"))
    return Group(*lines)
