"""Formats the plan of an upgrade as text."""

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from common.upgrade.traffic_record import WHOLE
from raybus_cli.planning import policies
from raybus_cli.planning.demand import QuotaCheck
from raybus_cli.planning.differences import Effect, SpecDifference
from raybus_cli.planning.plan import StrategyCost, UpgradePlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.planning.surge import Surge
from raybus_cli.printing import Column, Table

_STYLES = {
    PlanOutcome.REFUSED: "bold red",
    PlanOutcome.NEW_CLUSTER: "bold yellow",
    PlanOutcome.RECREATED: "bold yellow",
    PlanOutcome.ROLLED_BACK: "bold yellow",
    PlanOutcome.SUSPENDED: "bold yellow",
}
_EFFECT_WIDTH: Final = 13


def draw(plan: UpgradePlan) -> RenderableType:
    """Format a plan as text and tables."""
    head = Text(f"{plan.kind} {plan.namespace}/{plan.name}: ")
    head.append(plan.outcome, style=_STYLES.get(plan.outcome, "bold green"))
    lines: list[RenderableType] = [head, *(Text(f"  {note}") for note in plan.notes)]
    if plan.differences:
        lines += [
            Text(),
            *(line for difference in plan.differences for line in format_difference(difference)),
        ]
    if plan.ways:
        lines += [Text(), _build_cost_table(plan)]
        lines += [Text(sentence) for sentence in _describe_upgrade(plan)]
    if plan.policy is not None:
        lines += [Text(), *(Text(line) for line in policies.format_plan(plan.policy))]
    return Group(*lines)


def format_difference(difference: SpecDifference) -> list[Text]:
    """Format a changed field on lines of its own: field paths are too long for a column."""
    lines = [
        difference.field,
        f"{difference.old} → {difference.new}",
        *([difference.note] if difference.note else []),
    ]
    effect = Text(
        f"{difference.effect:{_EFFECT_WIDTH}}",
        style="yellow" if difference.effect in {Effect.NEW_CLUSTER, Effect.NEW_PODS} else "",
    )
    return [effect + Text(lines[0]), *(Text(f"{'':{_EFFECT_WIDTH}}{line}") for line in lines[1:])]


def _build_cost_table(plan: UpgradePlan) -> Table:
    """Build the cost table: a row per resource, columns for the present and each strategy."""
    names = sorted({name for choice in plan.ways for name in choice.peak})
    is_now = bool(plan.now)
    rows = [
        ["selected", *([""] * is_now), *("yes" if cost.is_chosen else "" for cost in plan.ways)],
        ["traffic moves", *([""] * is_now), *(_format_traffic(cost) for cost in plan.ways)],
        ["capacity", *([f"{WHOLE} %"] * is_now), *(_format_capacity(cost) for cost in plan.ways)],
        *(
            [
                name,
                *([plan.now.get(name, "0")] * is_now),
                *(_format_amount(cost, name) for cost in plan.ways),
            ]
            for name in names
        ),
    ]
    columns = [
        Column(heading)
        for heading in ("", *(["now"] * is_now), *(cost.strategy for cost in plan.ways))
    ]
    return Table(tuple(columns), rows)


def _format_capacity(way: StrategyCost) -> str:
    return (
        f"{way.peak_percent} %"
        if way.lowest_percent == WHOLE
        else f"{way.lowest_percent} to {way.peak_percent} %"
    )


def _format_amount(way: StrategyCost, name: str) -> str:
    peak, most = way.peak[name], way.at_most[name]
    return peak if peak == most else f"{peak} (to {most})"


def _format_traffic(way: StrategyCost) -> str:
    if way.traffic_seconds is None:
        return "never ends: step and surge must be more than 0"
    return (
        f"{way.moves} in {policies.format_duration(way.traffic_seconds)}"
        if way.traffic_seconds
        else "at once"
    )


def _describe_upgrade(plan: UpgradePlan) -> list[str]:
    sentences = [
        sentence for way in plan.ways for sentence in format_quotas(way.quotas, way.strategy)
    ]
    if plan.surge is not None:
        sentences += _describe_surge(plan.surge)
    if plan.outcome is PlanOutcome.CREATED:
        return sentences
    known = plan.preparing_seconds
    before = (
        f"{policies.format_duration(known)} at the last upgrade"
        if known is not None
        else "unknown before the first upgrade"
    )
    sentences.append(f"Before the traffic moves, the new cluster has to be ready ({before}).")
    sentences.append(
        f"The old cluster is kept for {policies.format_duration(plan.kept_seconds)} afterwards."
    )
    return sentences


def format_quotas(quotas: Iterable[QuotaCheck], purpose: str) -> list[str]:
    """Return a sentence for each quota: whether it has room for `purpose`."""
    sentences: list[str] = []
    for quota in quotas:
        verdict = "has room" if quota.is_enough else "is too small"
        need = f"{quota.used} of {quota.hard} {quota.resource} used, {quota.more} more needed"
        sentences.append(f"ResourceQuota {quota.quota} {verdict} for {purpose}: {need}")
    return sentences


def _describe_surge(surge: Surge) -> list[str]:
    """Format the largest surge that fits, and the quotas that limit it."""
    limits = [
        f"ResourceQuota {limit.quota}: {limit.used} of {limit.hard} {limit.resource} used, "
        f"{limit.more} more needed"
        for limit in surge.limits
    ]
    if surge.percent is None:
        remedy = "raise the quota, or plan with `--max-surge 0 --step 0 --max-unavailable PERCENT`"
        return [f"No maxSurgePercent fits: {remedy}.", *(f"  {limit}" for limit in limits)]
    if not limits:
        return [
            f"No ResourceQuota limits maxSurgePercent ({surge.percent}); whether the nodes have "
            "room is not examined."
        ]
    return [
        f"The largest maxSurgePercent that fits is {surge.percent}. One percent more exceeds:",
        *(f"  {limit}" for limit in limits),
    ]
