"""The output of one read in each format.

A read has a picture for a terminal, and a line and a document for each object.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import structs
from rich.console import Group, RenderableType
from rich.text import Text

from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.ray import serve_writer
from raybus_cli.planning import steps
from raybus_cli.printing import PIPE_WIDTH, Column, Table, age
from raybus_cli.reading import kinds, snapshot
from raybus_cli.reading.kinds import Kind
from raybus_cli.reading.snapshot import ClusterSnapshot, Snapshot
from raybus_cli.show import phase, picture, tree
from raybus_cli.show.tree import seconds_since

_NAMESPACE: Final = (Column("namespace"),)
_SERVICE: Final = (
    Column("name"),
    Column("phase"),
    Column("endpoints", 2),
    Column("traffic", 1),
    Column("age", 3),
)
_SERVICE_WIDE: Final = (
    Column("strategy", 8),
    Column("capacity", 7),
    Column("active", 4),
    Column("pending", 5),
    Column("reason", 6),
)
_CLUSTER: Final = (
    Column("name"),
    Column("desired workers", 4),
    Column("available workers", 3),
    Column("cpus", 6),
    Column("memory", 7),
    Column("gpus", 5),
    Column("status"),
    Column("service", 1),
    Column("age", 2),
)
_CLUSTER_WIDE: Final = (Column("head pod ip", 9), Column("reason", 8))


class ServiceRow(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="RayService"
):
    """A row of the RayService table."""

    namespace: str
    name: str
    phase: str
    endpoints: int
    traffic: str
    """Traffic shares of the active and the pending cluster in percent, as `80/20`."""
    age_seconds: int | None
    strategy: str
    capacity: str
    active: str
    pending: str
    reason: str


class ClusterRow(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="RayCluster"
):
    """A row of the RayCluster table, with the columns of `kubectl get`."""

    namespace: str
    name: str
    status: str
    desired_workers: int
    available_workers: int
    cpus: str
    memory: str
    gpus: str
    service: str
    """The RayService that the cluster belongs to."""
    age_seconds: int | None
    head_pod_ip: str
    reason: str


class Listing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All rows of `raybus list`."""

    services: list[ServiceRow] = []
    clusters: list[ClusterRow] = []


def build(
    services: Iterable[RayService], clusters: Iterable[RayCluster], *, now: datetime
) -> Listing:
    """Build the rows, ordered by namespace and name; RayServices that need an action come first."""
    return Listing(
        services=[_service(each, now=now) for each in sorted(services, key=phase.order)],
        clusters=[
            _cluster(each, now=now)
            for each in sorted(clusters, key=lambda each: _place(each.metadata))
        ],
    )


def service_table(rows: Sequence[ServiceRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Build the table of RayServices; `all_namespaces` adds the column of the namespace."""
    lines = [
        (
            *([each.namespace] if all_namespaces else []),
            *(each.name, each.phase, str(each.endpoints), each.traffic, age(each.age_seconds)),
            *(
                (each.strategy, each.capacity, each.active or "-", each.pending or "-", each.reason)
                if wide
                else ()
            ),
        )
        for each in rows
    ]
    return Table(
        (*_NAMESPACE[: int(all_namespaces)], *_SERVICE, *(_SERVICE_WIDE if wide else ())), lines
    )


def cluster_table(rows: Sequence[ClusterRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Build the table of RayClusters; `all_namespaces` adds the column of the namespace."""
    lines = [
        (
            *([each.namespace] if all_namespaces else []),
            *(
                each.name,
                str(each.desired_workers),
                str(each.available_workers),
                each.cpus,
                each.memory,
                each.gpus,
            ),
            *(each.status or "-", each.service or "-", age(each.age_seconds)),
            *((each.head_pod_ip or "-", each.reason or "-") if wide else ()),
        )
        for each in rows
    ]
    return Table(
        (*_NAMESPACE[: int(all_namespaces)], *_CLUSTER, *(_CLUSTER_WIDE if wide else ())), lines
    )


def _service(service: RayService, *, now: datetime) -> ServiceRow:
    meta, status = service.metadata, service.status
    active, pending = status.active_service_status, status.pending_service_status
    current = phase.of(service)
    is_moving = serve_writer.is_incremental(service, BETA) and bool(pending.ray_cluster_name)
    at_once = "100" if active.ray_cluster_name and status.num_serve_endpoints else "-"
    return ServiceRow(
        namespace=meta.namespace,
        name=meta.name,
        phase=current.phase,
        endpoints=status.num_serve_endpoints,
        traffic=_pair(active.traffic_routed_percent, pending.traffic_routed_percent)
        if is_moving
        else at_once,
        age_seconds=seconds_since(meta.creation_timestamp, now),
        strategy=steps.strategy(service),
        capacity=_pair(active.target_capacity, pending.target_capacity) if is_moving else "-",
        active=active.ray_cluster_name,
        pending=pending.ray_cluster_name,
        reason=current.reason,
    )


def _cluster(cluster: RayCluster, *, now: datetime) -> ClusterRow:
    meta, status = cluster.metadata, cluster.status
    return ClusterRow(
        namespace=meta.namespace,
        name=meta.name,
        status=status.state,
        desired_workers=status.desired_worker_replicas,
        available_workers=status.available_worker_replicas,
        cpus=str(status.desired_cpu),
        memory=str(status.desired_memory),
        gpus=str(status.desired_gpu),
        service=snapshot.origin(cluster),
        age_seconds=seconds_since(meta.creation_timestamp, now),
        head_pod_ip=status.head.pod_ip,
        reason=status.reason,
    )


def _pair(first: int | None, second: int | None) -> str:
    return f"{'-' if first is None else first}/{'-' if second is None else second}"


def _place(meta: ObjectMeta) -> tuple[str, str]:
    return meta.namespace, meta.name


DELETED: Final = "Deleted"
_NO_CLOCK: Final = datetime.max.replace(tzinfo=UTC)
"""A fixed time for `Item.state`, so that two reads differ only if the objects do."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a read."""

    kind: Kind
    namespace: str
    name: str
    line: str
    heading: str = ""
    """Table heading, printed above the first line of its kind."""
    document: Any
    state: Any
    """A value that is equal in two reads if the object did not change, whatever time has passed."""

    @property
    def full_name(self) -> str:
        """The name as `-o name` prints it."""
        return self.kind.full(self.name)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one read."""

    picture: RenderableType | None
    """The picture for a terminal; None if there is nothing to show."""
    document: Any
    items: list[Item]


def of_trees(found: Sequence[Snapshot | ClusterSnapshot], *, now: datetime, wide: bool) -> Frame:
    """Build the trees of some objects.

    A single object is its own document, several are a list, as in kubectl.
    """
    items: list[Item] = []
    pictures: list[RenderableType] = []
    for each in found:
        if isinstance(each, Snapshot):
            shown = tree.build(each, now=now)
            drawn, line = picture.draw(shown, wide=wide), picture.line(shown)
            kind, state = kinds.SERVICE, tree.build(each, now=_NO_CLOCK)
        else:
            shown = tree.build_cluster(each, now=now)
            drawn, line = picture.draw_cluster(shown, wide=wide), picture.cluster_line(shown)
            kind, state = kinds.CLUSTER, tree.build_cluster(each, now=_NO_CLOCK)
        pictures += [Text(), drawn] if pictures else [drawn]
        items.append(
            Item(
                kind=kind,
                namespace=shown.namespace,
                name=shown.name,
                line=line,
                document=shown,
                state=state,
            )
        )
    documents = [each.document for each in items]
    document = documents[0] if len(documents) == 1 else {"items": documents}
    return Frame(picture=Group(*pictures) if pictures else None, document=document, items=items)


def of_listing(
    found: Listing, *, wide: bool, all_namespaces: bool, before: Sequence[Item] = ()
) -> Frame:
    """Build the tables of all objects.

    An object of `before` that no longer exists is included once more, as deleted.
    """
    services = service_table(found.services, wide=wide, all_namespaces=all_namespaces)
    clusters = cluster_table(found.clusters, wide=wide, all_namespaces=all_namespaces)
    items = [
        *_items(kinds.SERVICE, found.services, services),
        *_items(kinds.CLUSTER, found.clusters, clusters),
    ]
    shown: list[RenderableType] = [each for each in (services, clusters) if each.rows]
    if len(shown) > 1:
        shown.insert(1, Text())
    there = {(each.kind, each.namespace, each.name) for each in items}
    gone = [each for each in before if (each.kind, each.namespace, each.name) not in there]
    items += [
        _deleted(each, wide=wide, all_namespaces=all_namespaces)
        for each in gone
        if each.state is not None
    ]
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
        table = service_table([row], wide=wide, all_namespaces=all_namespaces)
    else:
        row = structs.replace(row, status=DELETED)
        table = cluster_table([row], wide=wide, all_namespaces=all_namespaces)
    return structs.replace(item, line=table.lines(PIPE_WIDTH)[1], document=row, state=None)
