"""The output of `raybus get` and `raybus list`, prepared for every output format.

Each read of the objects results in one picture for a terminal, and in a line and a document for
each object.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs
from rich.console import Group, RenderableType
from rich.text import Text

from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.ray import serve_writer
from raybus_cli.planning import steps
from raybus_cli.printing import PIPE_WIDTH, Column, Table, format_age
from raybus_cli.reading import kinds, snapshot
from raybus_cli.reading.job_snapshot import CronJobSnapshot, JobSnapshot
from raybus_cli.reading.kinds import ArgumentKind
from raybus_cli.reading.snapshot import ClusterSnapshot, Snapshot
from raybus_cli.show import job_picture, job_rows, job_tree, phase, picture, tree
from raybus_cli.show.job_rows import CronJobRow, JobRow
from raybus_cli.show.tree import count_seconds_since

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


class ListOutput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All rows of `raybus list`."""

    services: list[ServiceRow] = []
    clusters: list[ClusterRow] = []
    jobs: list[JobRow] = []
    cron_jobs: list[CronJobRow] = []


def build(
    services: Iterable[RayService],
    clusters: Iterable[RayCluster],
    jobs: Iterable[RayJob] = (),
    cron_jobs: Iterable[RayCronJob] = (),
    *,
    now: datetime,
) -> ListOutput:
    """Build the rows, ordered by namespace and name; RayServices that need an action come first."""
    return ListOutput(
        services=[
            _build_service_row(service, now=now) for service in sorted(services, key=phase.sort_key)
        ],
        clusters=[
            _build_cluster_row(cluster, now=now)
            for cluster in sorted(clusters, key=lambda cluster: _get_place(cluster.metadata))
        ],
        jobs=[
            job_rows.build_job_row(job, now=now)
            for job in sorted(jobs, key=lambda job: _get_place(job.metadata))
        ],
        cron_jobs=[
            job_rows.build_cron_job_row(cron_job, now=now)
            for cron_job in sorted(cron_jobs, key=lambda cron_job: _get_place(cron_job.metadata))
        ],
    )


def build_service_table(rows: Sequence[ServiceRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Build the table of RayServices; `all_namespaces` adds the column of the namespace."""
    lines = [
        (
            *([row.namespace] if all_namespaces else []),
            *(row.name, row.phase, str(row.endpoints), row.traffic, format_age(row.age_seconds)),
            *(
                (row.strategy, row.capacity, row.active or "-", row.pending or "-", row.reason)
                if wide
                else ()
            ),
        )
        for row in rows
    ]
    return Table(
        (*_NAMESPACE[: int(all_namespaces)], *_SERVICE, *(_SERVICE_WIDE if wide else ())), lines
    )


def build_cluster_table(rows: Sequence[ClusterRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Build the table of RayClusters; `all_namespaces` adds the column of the namespace."""
    lines = [
        (
            *([row.namespace] if all_namespaces else []),
            *(
                row.name,
                str(row.desired_workers),
                str(row.available_workers),
                row.cpus,
                row.memory,
                row.gpus,
            ),
            *(row.status or "-", row.service or "-", format_age(row.age_seconds)),
            *((row.head_pod_ip or "-", row.reason or "-") if wide else ()),
        )
        for row in rows
    ]
    return Table(
        (*_NAMESPACE[: int(all_namespaces)], *_CLUSTER, *(_CLUSTER_WIDE if wide else ())), lines
    )


def _build_service_row(service: RayService, *, now: datetime) -> ServiceRow:
    meta, status = service.metadata, service.status
    active, pending = status.active_service_status, status.pending_service_status
    current = phase.derive_phase(service)
    is_moving = serve_writer.is_incremental(service, BETA) and bool(pending.ray_cluster_name)
    at_once = "100" if active.ray_cluster_name and status.num_serve_endpoints else "-"
    return ServiceRow(
        namespace=meta.namespace,
        name=meta.name,
        phase=current.phase,
        endpoints=status.num_serve_endpoints,
        traffic=_format_pair(active.traffic_routed_percent, pending.traffic_routed_percent)
        if is_moving
        else at_once,
        age_seconds=count_seconds_since(meta.creation_timestamp, now),
        strategy=steps.get_strategy(service),
        capacity=_format_pair(active.target_capacity, pending.target_capacity)
        if is_moving
        else "-",
        active=active.ray_cluster_name,
        pending=pending.ray_cluster_name,
        reason=current.reason,
    )


def _build_cluster_row(cluster: RayCluster, *, now: datetime) -> ClusterRow:
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
        service=snapshot.find_origin(cluster),
        age_seconds=count_seconds_since(meta.creation_timestamp, now),
        head_pod_ip=status.head.pod_ip,
        reason=status.reason,
    )


def _format_pair(first: int | None, second: int | None) -> str:
    return f"{'-' if first is None else first}/{'-' if second is None else second}"


def _get_place(meta: ObjectMeta) -> tuple[str, str]:
    return meta.namespace, meta.name


DELETED_STATE: Final = "Deleted"
_NO_CLOCK: Final = datetime.max.replace(tzinfo=UTC)
"""A fixed time to compute `Item.state` with, so that the state changes only with the object."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """The output for one object: a line of text, and a document for JSON and YAML."""

    kind: ArgumentKind
    namespace: str
    name: str
    line: str
    heading: str = ""
    """Table heading, printed above the first line of its kind."""
    document: Any
    state: Any
    """A value that changes only if the object changes, however much time passes."""

    @property
    def full_name(self) -> str:
        """The name as `-o name` prints it."""
        return self.kind.format_name(self.name)


class OutputFrame(msgspec.Struct, frozen=True, kw_only=True):
    """What a command outputs after reading the objects once, prepared for every output format."""

    picture: RenderableType | None
    """The picture for a terminal; None if there is nothing to show."""
    document: Any
    items: list[Item]


AnySnapshot: TypeAlias = Snapshot | ClusterSnapshot | JobSnapshot | CronJobSnapshot


def build_trees(snapshots: Sequence[AnySnapshot], *, now: datetime, wide: bool) -> OutputFrame:
    """Build the trees of some objects.

    As in kubectl, the JSON or YAML document of several objects is a list; that of one is the
    object.
    """
    items: list[Item] = []
    pictures: list[RenderableType] = []
    for read in snapshots:
        match read:
            case Snapshot():
                shown = tree.build(read, now=now)
                drawn, line = picture.draw(shown, wide=wide), picture.format_line(shown)
                kind, state = kinds.SERVICE, tree.build(read, now=_NO_CLOCK)
            case ClusterSnapshot():
                shown = tree.build_cluster(read, now=now)
                drawn = picture.draw_cluster(shown, wide=wide)
                line = picture.format_cluster_line(shown)
                kind, state = kinds.CLUSTER, tree.build_cluster(read, now=_NO_CLOCK)
            case JobSnapshot():
                shown = job_tree.build_job(read, now=now)
                drawn, line = (
                    job_picture.draw_job(shown, wide=wide),
                    job_picture.format_job_line(shown),
                )
                kind, state = kinds.JOB, job_tree.build_job(read, now=_NO_CLOCK)
            case CronJobSnapshot():
                shown = job_tree.build_cron_job(read, now=now)
                drawn = job_picture.draw_cron_job(shown, wide=wide)
                line = job_picture.format_cron_job_line(shown)
                kind, state = kinds.CRON_JOB, job_tree.build_cron_job(read, now=_NO_CLOCK)
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
    documents = [item.document for item in items]
    document = documents[0] if len(documents) == 1 else {"items": documents}
    return OutputFrame(
        picture=Group(*pictures) if pictures else None, document=document, items=items
    )


def build_listing(
    listing: ListOutput, *, wide: bool, all_namespaces: bool, before: Sequence[Item] = ()
) -> OutputFrame:
    """Build the tables of all objects.

    `before` are the items of the last frame. Objects that were deleted since then are included one
    last time, marked as deleted.
    """
    services = build_service_table(listing.services, wide=wide, all_namespaces=all_namespaces)
    clusters = build_cluster_table(listing.clusters, wide=wide, all_namespaces=all_namespaces)
    jobs = job_rows.build_job_table(listing.jobs, wide=wide, all_namespaces=all_namespaces)
    cron_jobs = job_rows.build_cron_job_table(
        listing.cron_jobs, wide=wide, all_namespaces=all_namespaces
    )
    items = [
        *_build_items(kinds.SERVICE, listing.services, services),
        *_build_items(kinds.CLUSTER, listing.clusters, clusters),
        *_build_items(kinds.JOB, listing.jobs, jobs),
        *_build_items(kinds.CRON_JOB, listing.cron_jobs, cron_jobs),
    ]
    shown: list[RenderableType] = []
    for table in (services, clusters, jobs, cron_jobs):
        if table.rows:
            shown += [Text(), table] if shown else [table]
    there = {(item.kind, item.namespace, item.name) for item in items}
    gone = [item for item in before if (item.kind, item.namespace, item.name) not in there]
    items += [
        _mark_deleted(item, wide=wide, all_namespaces=all_namespaces)
        for item in gone
        if item.state is not None
    ]
    return OutputFrame(picture=Group(*shown) if shown else None, document=listing, items=items)


AnyRow: TypeAlias = ServiceRow | ClusterRow | JobRow | CronJobRow


def _build_items(kind: ArgumentKind, rows: Iterable[AnyRow], table: Table) -> list[Item]:
    heading, *lines = table.format_lines(PIPE_WIDTH)
    return [
        Item(
            kind=kind,
            namespace=row.namespace,
            name=row.name,
            line=line,
            heading=heading,
            document=row,
            state=_without_ages(row),
        )
        for row, line in zip(rows, lines, strict=True)
    ]


def _without_ages(row: AnyRow) -> AnyRow:
    """Return a row without the values that change with time alone."""
    match row:
        case JobRow():
            return structs.replace(row, age_seconds=None, seconds=None)
        case CronJobRow():
            return structs.replace(
                row,
                age_seconds=None,
                last_run_seconds=None,
                next_run=None,
                next_run_seconds=None,
            )
        case _:
            return structs.replace(row, age_seconds=None)


def _mark_deleted(item: Item, *, wide: bool, all_namespaces: bool) -> Item:
    row: AnyRow = item.document
    match row:
        case ServiceRow():
            row = structs.replace(row, phase=DELETED_STATE)
            table = build_service_table([row], wide=wide, all_namespaces=all_namespaces)
        case ClusterRow():
            row = structs.replace(row, status=DELETED_STATE)
            table = build_cluster_table([row], wide=wide, all_namespaces=all_namespaces)
        case JobRow():
            row = structs.replace(row, status=DELETED_STATE)
            table = job_rows.build_job_table([row], wide=wide, all_namespaces=all_namespaces)
        case CronJobRow():
            row = structs.replace(row, status=DELETED_STATE, next_run=None, next_run_seconds=None)
            table = job_rows.build_cron_job_table([row], wide=wide, all_namespaces=all_namespaces)
    return structs.replace(item, line=table.format_lines(PIPE_WIDTH)[1], document=row, state=None)
