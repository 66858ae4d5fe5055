"""Formats the tree of a RayService or RayCluster for a terminal.

The tree has labelled lines, weights as bars, and pods below their cluster or group.
"""

from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Drawn

from raybus_cli.printing import FittingLine, format_age
from raybus_cli.show import gates, phase
from raybus_cli.show.cause_texts import Code
from raybus_cli.show.phase import Tone
from raybus_cli.show.tree import (
    Branch,
    ClusterTree,
    GroupBranch,
    LastEvent,
    PodLine,
    Tree,
    UpgradeProgress,
)

BAR_WIDTH: Final = 20
_STYLES: Final = {Tone.GOOD: "bold green", Tone.BUSY: "bold yellow", Tone.BAD: "bold red"}

_BLOCKING: Final = frozenset(Code)


def draw(tree: Tree, *, wide: bool = False) -> RenderableType:
    """Format the tree of a RayService.

    `wide` adds restarts of all pods and objects that could not be read.
    """
    tone = phase.get_tone(tree.phase)
    status = Text(tree.phase, style=_STYLES[tone])
    if tone is Tone.GOOD and tree.reason in _BLOCKING:
        status.append(f", {tree.reason}", style="bold yellow")
    head = [
        ("Name", Text(tree.name, style="bold")),
        ("Namespace", Text(tree.namespace)),
        ("Status", status),
        ("Strategy", Text(tree.strategy)),
        ("Endpoints", Text(str(tree.endpoints))),
        (
            "Images",
            format_images(
                (image, cluster.role)
                for cluster in tree.clusters
                for image in cluster.images.values()
            ),
        ),
        ("Message", Text(tree.message, style="" if tone is Tone.GOOD else "yellow")),
    ]
    if tree.upgrade is not None:
        head.append(
            (
                _name_course(tree.upgrade).capitalize(),
                Text(format_progress(tree.upgrade), style="cyan"),
            )
        )
        if (shown := tree.upgrade.gates) is not None:
            head.append((f"Gates at {shown.weight} %", gates.draw(shown)))
    clusters = [_draw_branch(cluster, wide=wide) for cluster in tree.clusters] or [
        Text("No RayCluster.")
    ]
    return Group(
        format_labelled(head), *clusters, *format_footer(tree.last_event, tree.unseen, wide=wide)
    )


def format_labelled(lines: Iterable[tuple[str, Text]]) -> RenderableType:
    """Format labelled lines with a blank line below.

    Empty texts are left out; long texts wrap in their column.
    """
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in lines:
        if text:
            grid.add_row(f"{label}:", text)
    return Padding(grid, (0, 0, 1, 0), expand=False)


def format_images(used: Iterable[tuple[str, str]]) -> Text:
    """Format images, one per line, each with its users in parentheses.

    `used` are pairs of an image and a role or worker group that uses the image.
    """
    users: dict[str, list[str]] = {}
    for image, user in used:
        if image and user not in users.setdefault(image, []):
            users[image].append(user)
    return Text("\n".join(f"{image} ({', '.join(roles)})" for image, roles in users.items()))


def format_footer(
    event: LastEvent | None, unseen: Iterable[str], *, wide: bool
) -> list[RenderableType]:
    """Format the lines below a tree: the last Event and, if `wide`, what could not be read."""
    lines: list[RenderableType] = []
    if event is not None:
        since = format_age(event.age_seconds)
        text = f"Last event {since} ago: {event.reason}: {event.note} ({event.about})"
        lines.append(Text(text, style="yellow" if event.type == "Warning" else ""))
    return lines + [
        Text(f"Not readable: {unreadable}", style="dim") for unreadable in unseen if wide
    ]


def format_line(tree: Tree) -> str:
    """Format the tree of a RayService as one plain line, for `-w` without a terminal."""
    parts = [f"{tree.namespace}/{tree.name} {tree.phase}"]
    if tree.upgrade is not None:
        parts.append(
            f"{_name_course(tree.upgrade)}: {format_progress(tree.upgrade, with_time=False)}"
        )
    if tree.upgrade is not None and tree.upgrade.gates is not None:
        parts.append(gates.format_line(tree.upgrade.gates))
    parts += [_summarize_branch(cluster) for cluster in tree.clusters]
    if tree.message:
        parts.append(tree.message)
    return "; ".join(parts)


def format_progress(upgrade: UpgradeProgress, *, with_time: bool = True) -> str:
    """Format the progress of an upgrade; `with_time` adds the time until the next step."""
    if upgrade.step is None or upgrade.steps is None:
        return "all traffic moves at once"
    text = f"step {upgrade.step} of {upgrade.steps}"
    if with_time and upgrade.next_step_seconds is not None:
        text += (
            f", next step in {upgrade.next_step_seconds} s"
            if upgrade.next_step_seconds
            else ", next step is due"
        )
    return text


def _name_course(upgrade: UpgradeProgress) -> str:
    return "rollback" if upgrade.direction == "back" else "upgrade"


def format_pod(line: PodLine, *, wide: bool, with_group: bool = True) -> FittingLine:
    """Format the line of a pod; the group is dropped if the line is too narrow."""
    state = Text("  ").append(line.state, style="green" if line.state == "Ready" else "yellow")
    state.append(f"  {format_age(line.age_seconds)}")
    if wide or line.restarts:
        state.append(f"  {line.restarts} restart{'' if line.restarts == 1 else 's'}")
    forms = (Text.assemble(f"  {line.group}", state), state) if with_group else (state,)
    return FittingLine(Text(line.name), forms)


def draw_bar(percent: int) -> str:
    """Format a percentage as a bar."""
    filled = round(BAR_WIDTH * percent / 100)
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def _summarize_branch(branch: Branch) -> str:
    weight = "" if branch.weight is None else f" {branch.weight} %"
    return f"{branch.name} {branch.role}{weight} ({branch.ready_pods}/{len(branch.pods)} pods)"


def _draw_branch(branch: Branch, *, wide: bool) -> Drawn:
    role = Text(f"  {branch.role}", style="cyan" if branch.role == "pending" else "")
    weight = "" if branch.weight is None else f"{branch.weight:3d} %"
    capacity = ""
    if branch.target_capacity is not None or branch.ready_capacity is not None:
        ready, target = map(_format_percent, (branch.ready_capacity, branch.target_capacity))
        capacity = f"  capacity {ready} of {target}"
    pods = f"  pods {branch.ready_pods}/{len(branch.pods)}"
    note = Text(f"  {branch.note}" if branch.note else "", style="yellow")
    drawn_weight, plain_weight = (
        (f"  {draw_bar(branch.weight)} {weight}", f"  {weight.strip()}")
        if branch.weight is not None
        else ("", "")
    )
    forms = tuple(
        Text.assemble(role, shown, note)
        for shown in (
            f"{drawn_weight}{capacity}{pods}",
            f"{plain_weight}{capacity}{pods}",
            f"{plain_weight}{pods}",
        )
    )
    drawn = Drawn(FittingLine(Text(branch.name, style="bold"), forms))
    for name, status in sorted(branch.applications.items()):
        shown = Text(f"  {status}", style="" if status == "RUNNING" else "yellow")
        drawn.add(FittingLine(Text(f"application {name}"), (shown,)))
    for pod in branch.pods:
        drawn.add(format_pod(pod, wide=wide))
    return drawn


def _format_percent(amount: int | None) -> str:
    return "?" if amount is None else f"{amount} %"


def draw_cluster(tree: ClusterTree, *, wide: bool = False) -> RenderableType:
    """Format the tree of a RayCluster.

    `wide` adds the images of groups, restarts of all pods, and objects that could not be read.
    """
    role = f" ({tree.role})" if tree.role else ""
    head = [
        ("Name", Text(tree.name, style="bold")),
        ("Namespace", Text(tree.namespace)),
        (
            "Status",
            Text(
                tree.status or "-", style="bold green" if tree.status == "ready" else "bold yellow"
            ),
        ),
        ("RayService", Text(f"{tree.service}{role}" if tree.service else "-")),
        ("Ray version", Text(tree.ray_version or "-")),
        ("Images", format_images((group.image, group.name) for group in tree.groups)),
        ("Age", Text(format_age(tree.age_seconds))),
        ("Message", Text(tree.message, style="yellow")),
    ]
    lines: list[RenderableType] = [
        format_labelled(head),
        draw_groups(tree, wide=wide),
        *format_footer(tree.last_event, tree.unseen, wide=wide),
    ]
    return Group(*lines)


def draw_groups(tree: ClusterTree, *, wide: bool) -> Drawn:
    """Format the groups of a RayCluster with their pods."""
    drawn = Drawn(FittingLine(Text(tree.name, style="bold")))
    for group in tree.groups:
        drawn.add(_draw_group(group, wide=wide))
    return drawn


def format_cluster_line(tree: ClusterTree) -> str:
    """Format the tree of a RayCluster as one plain line, for `-w` without a terminal."""
    groups = [f"{group.name} {_format_count(group)}" for group in tree.groups]
    return "; ".join(
        [
            f"{tree.namespace}/{tree.name} {tree.status or '-'}",
            *groups,
            *([tree.message] * bool(tree.message)),
        ]
    )


def _draw_group(group: GroupBranch, *, wide: bool) -> Drawn:
    count = f"  pods {_format_count(group)}"
    forms = (
        (Text(f"{count}  {group.image}"), Text(count)) if wide and group.image else (Text(count),)
    )
    drawn = Drawn(FittingLine(Text(group.name), forms))
    for pod in group.pods:
        drawn.add(format_pod(pod, wide=wide, with_group=False))
    return drawn


def _format_count(group: GroupBranch) -> str:
    return f"{group.ready}/{len(group.pods) if group.desired is None else group.desired}"
