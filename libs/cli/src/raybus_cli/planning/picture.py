"""Formats a plan as text."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from common.upgrade.traffic_record import WHOLE
from raybus_cli.planning import policies
from raybus_cli.planning.differences import Difference, Effect
from raybus_cli.planning.plan import Plan, Way
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


def draw(plan: Plan) -> RenderableType:
    """Format a plan as text and tables."""
    head = Text(f"{plan.kind} {plan.namespace}/{plan.name}: ")
    head.append(plan.outcome, style=_STYLES.get(plan.outcome, "bold green"))
    lines: list[RenderableType] = [head, *(Text(f"  {each}") for each in plan.notes)]
    if plan.differences:
        lines += [Text(), *(line for each in plan.differences for line in _difference(each))]
    if plan.ways:
        lines += [Text(), _costs(plan)]
        lines += [Text(each) for each in _sentences(plan)]
    if plan.policy is not None:
        lines += [Text(), *(Text(each) for each in policies.lines(plan.policy))]
    return Group(*lines)


def _difference(found: Difference) -> list[Text]:
    """Format a changed field in separate lines, because field paths are too long for a column."""
    lines = [found.field, f"{found.old} → {found.new}", *([found.note] if found.note else [])]
    effect = Text(
        f"{found.effect:{_EFFECT_WIDTH}}",
        style="yellow" if found.effect in {Effect.NEW_CLUSTER, Effect.NEW_PODS} else "",
    )
    return [effect + Text(lines[0]), *(Text(f"{'':{_EFFECT_WIDTH}}{each}") for each in lines[1:])]


def _costs(plan: Plan) -> Table:
    """Build the cost table, with a row for each resource.

    The columns are the present state and each strategy.
    """
    names = sorted({name for choice in plan.ways for name in choice.peak})
    is_now = bool(plan.now)
    rows = [
        ["selected", *([""] * is_now), *("yes" if each.is_chosen else "" for each in plan.ways)],
        ["traffic moves", *([""] * is_now), *(_traffic(each) for each in plan.ways)],
        ["capacity", *([f"{WHOLE} %"] * is_now), *(_capacity(each) for each in plan.ways)],
        *(
            [
                name,
                *([plan.now.get(name, "0")] * is_now),
                *(_amount(each, name) for each in plan.ways),
            ]
            for name in names
        ),
    ]
    columns = [
        Column(each) for each in ("", *(["now"] * is_now), *(each.strategy for each in plan.ways))
    ]
    return Table(tuple(columns), rows)


def _capacity(way: Way) -> str:
    return (
        f"{way.peak_percent} %"
        if way.lowest_percent == WHOLE
        else f"{way.lowest_percent} to {way.peak_percent} %"
    )


def _amount(way: Way, name: str) -> str:
    peak, most = way.peak[name], way.at_most[name]
    return peak if peak == most else f"{peak} (to {most})"


def _traffic(way: Way) -> str:
    if way.traffic_seconds is None:
        return "never ends: step and surge must be more than 0"
    return f"{way.moves} in {length(way.traffic_seconds)}" if way.traffic_seconds else "at once"


def _sentences(plan: Plan) -> list[str]:
    found: list[str] = []
    for choice in plan.ways:
        for each in choice.quotas:
            verdict = "has room" if each.is_enough else "is too small"
            need = f"{each.used} of {each.hard} {each.resource} used, {each.more} more needed"
            found.append(f"ResourceQuota {each.quota} {verdict} for {choice.strategy}: {need}")
    if plan.surge is not None:
        found += _surge(plan.surge)
    if plan.outcome is PlanOutcome.CREATED:
        return found
    known = plan.preparing_seconds
    before = (
        f"{length(known)} at the last upgrade"
        if known is not None
        else "unknown before the first upgrade"
    )
    found.append(f"Before the traffic moves, the new cluster has to be ready ({before}).")
    found.append(f"The old cluster is kept for {length(plan.kept_seconds)} afterwards.")
    return found


def _surge(surge: Surge) -> list[str]:
    """Format the largest surge that fits, and the quotas that limit it."""
    limits = [
        f"ResourceQuota {each.quota}: {each.used} of {each.hard} {each.resource} used, "
        f"{each.more} more needed"
        for each in surge.limits
    ]
    if surge.percent is None:
        remedy = "raise the quota, or plan with `--max-surge 0 --step 0 --max-unavailable PERCENT`"
        return [f"No maxSurgePercent fits: {remedy}.", *(f"  {each}" for each in limits)]
    if not limits:
        return [
            f"No ResourceQuota limits maxSurgePercent ({surge.percent}); whether the nodes have "
            "room is not examined."
        ]
    return [
        f"The largest maxSurgePercent that fits is {surge.percent}. One percent more exceeds:",
        *(f"  {each}" for each in limits),
    ]


def length(seconds: int) -> str:
    """Format a number of seconds as `5 min 30 s`."""
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
