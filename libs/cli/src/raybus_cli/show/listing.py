"""The content of `raybus list`, as data: one row for each RayService and RayCluster."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from common import labels
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.ray import serve_writer
from raybus_cli.output.printing import age
from raybus_cli.reading import strategy
from raybus_cli.show import phase
from raybus_cli.show.tree import seconds_since


class ServiceRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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
    """Return the rows, by namespace and name."""
    return Listing(
        services=[_service(each, now=now) for each in sorted(services, key=lambda each: _place(each.metadata))],
        clusters=[_cluster(each, now=now) for each in sorted(clusters, key=lambda each: _place(each.metadata))],
    )


def service_table(rows: Iterable[ServiceRow], *, wide: bool, all_namespaces: bool) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows."""
    headings = ["name", "phase", "endpoints", "traffic", "age"]
    more = ["strategy", "capacity", "active", "pending", "reason"] if wide else []
    lines = [
        [
            *([each.namespace] if all_namespaces else []),
            *(each.name, each.phase, str(each.endpoints), each.traffic, age(each.age_seconds)),
            *((each.strategy, each.capacity, each.active or "-", each.pending or "-", each.reason) if wide else ()),
        ]
        for each in rows
    ]
    return [*(["namespace"] if all_namespaces else []), *headings, *more], lines


def cluster_table(rows: Iterable[ClusterRow], *, wide: bool, all_namespaces: bool) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows."""
    headings = ["name", "desired workers", "available workers", "cpus", "memory", "gpus", "status", "service", "age"]
    more = ["head pod ip", "reason"] if wide else []
    lines = [
        [
            *([each.namespace] if all_namespaces else []),
            *(each.name, str(each.desired_workers), str(each.available_workers), each.cpus, each.memory, each.gpus),
            *(each.status or "-", each.service or "-", age(each.age_seconds)),
            *((each.head_pod_ip or "-", each.reason or "-") if wide else ()),
        ]
        for each in rows
    ]
    return [*(["namespace"] if all_namespaces else []), *headings, *more], lines


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
    is_service = meta.labels.get(labels.ORIGIN_KIND) == "RayService"
    return ClusterRow(
        namespace=meta.namespace,
        name=meta.name,
        status=status.state,
        desired_workers=status.desired_worker_replicas,
        available_workers=status.available_worker_replicas,
        cpus=str(status.desired_cpu),
        memory=str(status.desired_memory),
        gpus=str(status.desired_gpu),
        service=meta.labels.get(labels.ORIGIN_NAME, "") if is_service else "",
        age_seconds=seconds_since(meta.creation_timestamp, now),
        head_pod_ip=status.head.pod_ip,
        reason=status.reason,
    )


def _pair(first: int | None, second: int | None) -> str:
    return f"{'-' if first is None else first}/{'-' if second is None else second}"


def _place(meta: ObjectMeta) -> tuple[str, str]:
    return meta.namespace, meta.name
