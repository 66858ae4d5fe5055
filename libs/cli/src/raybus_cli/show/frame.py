"""What one read shows, in each form: a picture for a terminal, a line and a document for each object."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import structs
from rich.console import Group, RenderableType
from rich.text import Text

from raybus_cli.output.printing import PIPE_WIDTH
from raybus_cli.output.tables import Table
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import Kind
from raybus_cli.reading.snapshot import ClusterSnapshot, Snapshot
from raybus_cli.show import cluster_picture, cluster_tree, listing, picture, tree
from raybus_cli.show.listing import ClusterRow, Listing, ServiceRow

DELETED: Final = "Deleted"
_NO_CLOCK: Final = datetime.max.replace(tzinfo=UTC)
"""At one fixed moment two reads differ only where the objects do."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a read."""

    kind: Kind
    namespace: str
    name: str
    line: str
    heading: str = ""
    """The line above the first one of its kind."""
    document: Any
    state: Any
    """Equal while the object is unchanged, whatever the time is."""

    @property
    def full_name(self) -> str:
        """Return how `-o name` prints it."""
        return self.kind.full(self.name)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """All of a read."""

    picture: RenderableType | None
    """None when there is nothing to show."""
    document: Any
    items: list[Item]


def of_trees(found: Sequence[Snapshot | ClusterSnapshot], *, now: datetime, wide: bool) -> Frame:
    """Return the trees of some objects; the document of a single one is its own, as with kubectl."""
    items: list[Item] = []
    pictures: list[RenderableType] = []
    for each in found:
        if isinstance(each, Snapshot):
            shown = tree.build(each, now=now)
            drawn, line = picture.draw(shown, wide=wide), picture.line(shown)
            kind, state = kinds.SERVICE, tree.build(each, now=_NO_CLOCK)
        else:
            shown = cluster_tree.build(each, now=now)
            drawn, line = cluster_picture.draw(shown, wide=wide), cluster_picture.line(shown)
            kind, state = kinds.CLUSTER, cluster_tree.build(each, now=_NO_CLOCK)
        pictures += [Text(), drawn] if pictures else [drawn]
        items.append(
            Item(kind=kind, namespace=shown.namespace, name=shown.name, line=line, document=shown, state=state)
        )
    documents = [each.document for each in items]
    document = documents[0] if len(documents) == 1 else {"items": documents}
    return Frame(picture=Group(*pictures) if pictures else None, document=document, items=items)


def of_listing(found: Listing, *, wide: bool, all_namespaces: bool, before: Sequence[Item] = ()) -> Frame:
    """Return tables of all objects; one that was there `before` and is gone is an item once more, as deleted."""
    services = listing.service_table(found.services, wide=wide, all_namespaces=all_namespaces)
    clusters = listing.cluster_table(found.clusters, wide=wide, all_namespaces=all_namespaces)
    items = [*_items(kinds.SERVICE, found.services, services), *_items(kinds.CLUSTER, found.clusters, clusters)]
    shown: list[RenderableType] = [each for each in (services, clusters) if each.rows]
    if len(shown) > 1:
        shown.insert(1, Text())
    there = {(each.kind, each.namespace, each.name) for each in items}
    gone = [each for each in before if (each.kind, each.namespace, each.name) not in there]
    items += [_deleted(each, wide=wide, all_namespaces=all_namespaces) for each in gone if each.state is not None]
    return Frame(picture=Group(*shown) if shown else None, document=found, items=items)


def _items(kind: Kind, rows: Iterable[ServiceRow | ClusterRow], table: Table) -> list[Item]:
    heading, *lines = table.lines(PIPE_WIDTH)
    return [
        Item(
            kind=kind,
            namespace=row.namespace,
            name=row.name,
            line=line,
            heading=heading,
            document=row,
            state=structs.replace(row, age_seconds=None),
        )
        for row, line in zip(rows, lines, strict=True)
    ]


def _deleted(item: Item, *, wide: bool, all_namespaces: bool) -> Item:
    row = item.document
    if isinstance(row, ServiceRow):
        row = structs.replace(row, phase=DELETED)
        table = listing.service_table([row], wide=wide, all_namespaces=all_namespaces)
    else:
        row = structs.replace(row, status=DELETED)
        table = listing.cluster_table([row], wide=wide, all_namespaces=all_namespaces)
    return structs.replace(item, line=table.lines(PIPE_WIDTH)[1], document=row, state=None)
