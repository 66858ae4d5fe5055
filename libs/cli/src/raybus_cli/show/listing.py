"""The content of `raybus list`, as data: one row for each RayService and RayCluster."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.ray import serve_writer
from raybus_cli.output.printing import age
from raybus_cli.output.tables import Column, Table
from raybus_cli.reading import snapshot, strategy
from raybus_cli.show import phase
from raybus_cli.show.tree import seconds_since

_NAMESPACE: Final = (Column("namespace"),)
_SERVICE: Final = (Column("name"), Column("phase"), Column("endpoints", 2), Column("traffic", 1), Column("age", 3))
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


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="RayService"):
    """A RayService."""

    namespace: str
    name: str
    phase: str
    endpoints: int
    traffic: str
    """The active cluster's share and the pending one's, as `80/20`."""
    age_seconds: int | None
    strategy: str
    capacity: str
    active: str
    pending: str
    reason: str


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="RayCluster"):
    """A RayCluster; the columns are those of `kubectl get`."""

    namespace: str
    name: str
    status: str
    desired_workers: int
    available_workers: int
    cpus: str
    memory: str
    gpus: str
    service: str
    """The RayService that it belongs to."""
    age_seconds: int | None
    head_pod_ip: str
    reason: str


class Listing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of them."""

    services: list[ServiceRow] = []
    clusters: list[ClusterRow] = []


def build(services: Iterable[RayService], clusters: Iterable[RayCluster], *, now: datetime) -> Listing:
    """Return the rows by namespace and name, RayServices that need an action first."""
    return Listing(
        services=[_service(each, now=now) for each in sorted(services, key=phase.order)],
        clusters=[_cluster(each, now=now) for each in sorted(clusters, key=lambda each: _place(each.metadata))],
    )


def service_table(rows: Sequence[ServiceRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Return RayServices as a table."""
    lines = [
        (
            *([each.namespace] if all_namespaces else []),
            *(each.name, each.phase, str(each.endpoints), each.traffic, age(each.age_seconds)),
            *((each.strategy, each.capacity, each.active or "-", each.pending or "-", each.reason) if wide else ()),
        )
        for each in rows
    ]
    return Table((*_NAMESPACE[: int(all_namespaces)], *_SERVICE, *(_SERVICE_WIDE if wide else ())), lines)


def cluster_table(rows: Sequence[ClusterRow], *, wide: bool, all_namespaces: bool) -> Table:
    """Return RayClusters as a table."""
    lines = [
        (
            *([each.namespace] if all_namespaces else []),
            *(each.name, str(each.desired_workers), str(each.available_workers), each.cpus, each.memory, each.gpus),
            *(each.status or "-", each.service or "-", age(each.age_seconds)),
            *((each.head_pod_ip or "-", each.reason or "-") if wide else ()),
        )
        for each in rows
    ]
    return Table((*_NAMESPACE[: int(all_namespaces)], *_CLUSTER, *(_CLUSTER_WIDE if wide else ())), lines)


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
        traffic=_pair(active.traffic_routed_percent, pending.traffic_routed_percent) if is_moving else at_once,
        age_seconds=seconds_since(meta.creation_timestamp, now),
        strategy=strategy.kind(service),
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
