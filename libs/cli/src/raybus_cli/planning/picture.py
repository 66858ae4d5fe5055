"""Prints a plan for people."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from common.traffic_record import WHOLE
from raybus_cli.output import printing
from raybus_cli.planning.differences import Difference, Effect
from raybus_cli.planning.plan import Plan, Way
from raybus_cli.planning.predict import Outcome

_STYLES = {
    Outcome.REFUSED: "bold red",
    Outcome.NEW_CLUSTER: "bold yellow",
    Outcome.ROLLED_BACK: "bold yellow",
    Outcome.SUSPENDED: "bold yellow",
}
_EFFECT_WIDTH: Final = 13


def draw(plan: Plan) -> RenderableType:
    """Return a plan as text and tables."""
    head = Text(f"RayService {plan.namespace}/{plan.name}: ")
    head.append(plan.outcome, style=_STYLES.get(plan.outcome, "bold green"))
    lines: list[RenderableType] = [head, *(Text(f"  {each}") for each in plan.notes)]
    if plan.differences:
        lines += [Text(), *(line for each in plan.differences for line in _difference(each))]
    if plan.ways:
        lines += [Text(), _costs(plan)]
        lines += [Text(each) for each in _sentences(plan)]
    return Group(*lines)


def _difference(found: Difference) -> list[Text]:
    """Return a changed field on lines of its own: paths are too long for a column."""
    told = [found.field, f"{found.old} → {found.new}", *([found.note] if found.note else [])]
    effect = Text(f"{found.effect:{_EFFECT_WIDTH}}", style="yellow" if found.effect is Effect.NEW_CLUSTER else "")
    return [effect + Text(told[0]), *(Text(f"{'':{_EFFECT_WIDTH}}{each}") for each in told[1:])]


def _costs(plan: Plan) -> Table:
    """Return one column for what is there now and for each strategy, and a line for each amount."""
    names = sorted({name for way in plan.ways for name in way.peak})
    is_now = bool(plan.now)
    rows = [
        ["asked for", *([""] * is_now), *("yes" if way.is_chosen else "" for way in plan.ways)],
        ["traffic moves", *([""] * is_now), *(_traffic(way) for way in plan.ways)],
        ["capacity", *([f"{WHOLE} %"] * is_now), *(_capacity(way) for way in plan.ways)],
        *([name, *([plan.now.get(name, "0")] * is_now), *(_amount(way, name) for way in plan.ways)] for name in names),
    ]
    return printing.table(("", *(["now"] * is_now), *(way.strategy for way in plan.ways)), rows)


def _capacity(way: Way) -> str:
    return f"{way.peak_percent} %" if way.lowest_percent == WHOLE else f"{way.lowest_percent} to {way.peak_percent} %"


def _amount(way: Way, name: str) -> str:
    peak, most = way.peak[name], way.at_most[name]
    return peak if peak == most else f"{peak} (to {most})"


def _traffic(way: Way) -> str:
    if way.traffic_seconds is None:
        return "never ends: step and surge must be more than 0"
    return f"{way.moves} in {length(way.traffic_seconds)}" if way.traffic_seconds else "at once"


def _sentences(plan: Plan) -> list[str]:
    found: list[str] = []
    for way in plan.ways:
        for each in way.quotas:
            verdict = "leaves room" if each.is_enough else "is too small"
            need = f"{each.used} of {each.hard} {each.resource} used, {each.more} more needed"
            found.append(f"ResourceQuota {each.quota} {verdict} for {way.strategy}: {need}")
    if plan.outcome is Outcome.CREATED:
        return found
    known = plan.preparing_seconds
    before = f"{length(known)} the last time" if known is not None else "not known before the first upgrade"
    found.append(f"Before the traffic moves, the new cluster has to be ready ({before}).")
    found.append(f"The old cluster is kept for {length(plan.kept_seconds)} afterwards.")
    return found


def length(seconds: int) -> str:
    """Return a length of time in words."""
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
