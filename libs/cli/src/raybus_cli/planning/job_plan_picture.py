"""Formats the plan of a RayJob or RayCronJob as text."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from common.api.meta import rfc3339
from raybus_cli.planning import picture
from raybus_cli.planning.job_plan import JobPlan, JobPlanOutcome, PlannedPods
from raybus_cli.printing import Column, Table

_STYLES: Final = {
    JobPlanOutcome.REFUSED: "bold red",
    JobPlanOutcome.SUSPENDED: "bold yellow",
}


def draw(plan: JobPlan) -> RenderableType:
    """Format a plan as text and tables."""
    head = Text(f"{plan.kind} {plan.namespace}/{plan.name}: ")
    head.append(plan.outcome, style=_STYLES.get(plan.outcome, "bold green"))
    lines: list[RenderableType] = [head, *(Text(f"  {note}") for note in plan.notes)]
    if plan.next_runs:
        lines.append(Text(f"  next runs: {', '.join(map(rfc3339, plan.next_runs))}"))
    if plan.differences:
        lines.append(Text())
        for difference in plan.differences:
            lines += picture.format_difference(difference)
    if plan.pods:
        pods = ", ".join(map(_format_pods, plan.pods))
        lines += [Text(), Text(f"One attempt ({plan.submission_mode}) has the pods: {pods}")]
        lines += [_build_table(plan), Text(_describe_gpus(plan))]
    lines += [Text(line) for line in picture.format_quotas(plan.quotas, "one attempt")]
    return Group(*lines)


def _format_pods(planned: PlannedPods) -> str:
    most = f" (to {planned.max_pods})" if planned.max_pods > planned.pods else ""
    return f"{planned.role} {planned.pods}{most}"


def _build_table(plan: JobPlan) -> Table:
    is_scaled = plan.max_demand != plan.demand
    rows = [
        [name, amount, *([plan.max_demand.get(name, amount)] * is_scaled)]
        for name, amount in sorted(plan.demand.items())
    ]
    headings = ["", "one attempt", *(["with all workers"] * is_scaled)]
    return Table(tuple(Column(heading) for heading in headings), rows)


def _describe_gpus(plan: JobPlan) -> str:
    return f"It needs {plan.gpus} GPUs." if plan.gpus != "0" else "It needs no GPU."
