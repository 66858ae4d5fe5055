"""Draws the tree of a RayCluster: labelled lines, then its groups with their pods."""

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawn

from raybus_cli.output.fitting import FittingLine
from raybus_cli.output.printing import age
from raybus_cli.show import picture
from raybus_cli.show.cluster_tree import ClusterTree, GroupBranch


def draw(tree: ClusterTree, *, wide: bool = False) -> RenderableType:
    """Return the picture; a wide one has every group's image, every pod's restarts, and what could not be read."""
    role = f" ({tree.role})" if tree.role else ""
    head = [
        ("Name", Text(tree.name, style="bold")),
        ("Namespace", Text(tree.namespace)),
        ("Status", Text(tree.status or "-", style="bold green" if tree.status == "ready" else "bold yellow")),
        ("RayService", Text(f"{tree.service}{role}" if tree.service else "-")),
        ("Ray version", Text(tree.ray_version or "-")),
        ("Images", picture.images((each.image, each.name) for each in tree.groups)),
        ("Age", Text(age(tree.age_seconds))),
        ("Message", Text(tree.message, style="yellow")),
    ]
    drawn = Drawn(FittingLine(Text(tree.name, style="bold")))
    for each in tree.groups:
        drawn.add(_group(each, wide=wide))
    lines: list[RenderableType] = [picture.labelled(head), drawn, *picture.end(tree.last_event, tree.unseen, wide=wide)]
    return Group(*lines)


def line(tree: ClusterTree) -> str:
    """Return the tree as one plain line, for `-w` where there is no terminal."""
    groups = [f"{each.name} {_count(each)}" for each in tree.groups]
    return "; ".join(
        [f"{tree.namespace}/{tree.name} {tree.status or '-'}", *groups, *([tree.message] * bool(tree.message))]
    )


def _group(group: GroupBranch, *, wide: bool) -> Drawn:
    count = f"  pods {_count(group)}"
    forms = (Text(f"{count}  {group.image}"), Text(count)) if wide and group.image else (Text(count),)
    drawn = Drawn(FittingLine(Text(group.name), forms))
    for pod in group.pods:
        drawn.add(picture.pod(pod, wide=wide, with_group=False))
    return drawn


def _count(group: GroupBranch) -> str:
    return f"{group.ready}/{len(group.pods) if group.desired is None else group.desired}"
