"""Draws the tree of a RayService: weights as bars, target beside ready capacity, pods below their cluster."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawn

from raybus_cli.output.printing import age
from raybus_cli.show import phase
from raybus_cli.show.phase import Tone
from raybus_cli.show.tree import Branch, PodLine, Tree, UpgradeProgress

BAR: Final = 20
_STYLES: Final = {Tone.GOOD: "bold green", Tone.BUSY: "bold yellow", Tone.BAD: "bold red"}


def draw(tree: Tree, *, wide: bool = False) -> RenderableType:
    """Return the picture; a wide one has every pod's restarts and what could not be read."""
    tone = phase.tone(tree.phase)
    head = Text()
    head.append(f"RayService {tree.namespace}/{tree.name}", style="bold")
    head.append("   ")
    head.append(tree.phase, style=_STYLES[tone])
    head.append(f"   {tree.strategy}   {tree.endpoints} endpoint{'' if tree.endpoints == 1 else 's'}")
    lines: list[RenderableType] = [head]
    if tree.message:
        lines.append(Text(f"  {tree.message}", style="" if tone is Tone.GOOD else "yellow"))
    if tree.upgrade is not None:
        lines.append(Text(f"  {upgrade_line(tree.upgrade)}", style="cyan"))
    lines += [_branch(each, wide=wide) for each in tree.clusters] or [Text("  no cluster")]
    if tree.last_event is not None:
        event = tree.last_event
        text = f"Last event {age(event.age_seconds)} ago: {event.reason}: {event.note} ({event.about})"
        lines.append(Text(text, style="yellow" if event.type == "Warning" else ""))
    if wide:
        lines += [Text(f"Not readable: {each}", style="dim") for each in tree.unseen]
    return Group(*lines)


def line(tree: Tree) -> str:
    """Return the tree as one plain line, for `-w` where there is no terminal."""
    parts = [f"{tree.namespace}/{tree.name} {tree.phase}"]
    if tree.upgrade is not None:
        parts.append(upgrade_line(tree.upgrade, with_time=False))
    parts += [_summary(each) for each in tree.clusters]
    if tree.message:
        parts.append(tree.message)
    return "; ".join(parts)


def upgrade_line(upgrade: UpgradeProgress, *, with_time: bool = True) -> str:
    """Return the progress of an upgrade."""
    what = "rollback" if upgrade.direction == "back" else "upgrade"
    if upgrade.step is None or upgrade.steps is None:
        return f"{what}: all traffic moves at once"
    text = f"{what}: step {upgrade.step} of {upgrade.steps}"
    if with_time and upgrade.next_step_seconds is not None:
        text += f", next step in {upgrade.next_step_seconds} s" if upgrade.next_step_seconds else ", next step is due"
    return text


def bar(percent: int) -> str:
    """Return a share as a bar."""
    filled = round(BAR * percent / 100)
    return "█" * filled + "░" * (BAR - filled)


def _summary(branch: Branch) -> str:
    weight = "" if branch.weight is None else f" {branch.weight} %"
    return f"{branch.name} {branch.role}{weight} ({branch.ready_pods}/{len(branch.pods)} pods)"


def _branch(branch: Branch, *, wide: bool) -> Drawn:
    title = Text()
    title.append(branch.name, style="bold")
    title.append(f"  {branch.role}", style="cyan" if branch.role == "pending" else "")
    if branch.weight is not None:
        title.append(f"  {bar(branch.weight)} {branch.weight:3d} %")
    if branch.target_capacity is not None or branch.ready_capacity is not None:
        title.append(f"  capacity {_percent(branch.ready_capacity)} of {_percent(branch.target_capacity)}")
    title.append(f"  pods {branch.ready_pods}/{len(branch.pods)}")
    if branch.note:
        title.append(f"  {branch.note}", style="yellow")
    drawn = Drawn(title)
    for name, status in sorted(branch.applications.items()):
        drawn.add(Text(f"application {name}  {status}", style="" if status == "RUNNING" else "yellow"))
    for pod in branch.pods:
        drawn.add(_pod(pod, wide=wide))
    return drawn


def _pod(pod: PodLine, *, wide: bool) -> Text:
    text = Text(f"{pod.name}  {pod.group}  ")
    text.append(pod.state, style="green" if pod.state == "Ready" else "yellow")
    text.append(f"  {age(pod.age_seconds)}")
    if wide or pod.restarts:
        text.append(f"  {pod.restarts} restart{'' if pod.restarts == 1 else 's'}")
    return text


def _percent(amount: int | None) -> str:
    return "?" if amount is None else f"{amount} %"
