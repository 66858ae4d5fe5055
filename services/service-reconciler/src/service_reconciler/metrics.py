"""Metrics of RayServices: the gauges of KubeRay (spec rayservice §13.5) and metrics of upgrades.

Gauges are computed from the cache at each scrape, so they vanish with their object and survive a
restart. Counters are increased after the write that they count.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from itertools import product
from typing import Final

import msgspec
import structlog
from msgspec import UNSET
from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from common import conditions, labels, names
from common.api.core import Service
from common.api.gateway import HttpRoute
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.clock import Clock
from common.kube.resources import RAY_CLUSTER
from common.observability.metrics import MetricFamily
from common.ray import owner, serve_status
from common.ray.serve_status import ServeDetails
from common.runtime.actions import Action, Annotate, Delete
from common.runtime.cache import Cache
from common.upgrade import events as upgrade_events
from common.upgrade import weighted_route
from common.upgrade.receipt import Receipt, UpgradeOutcome, receipt_of
from common.upgrade.service_conditions import ConditionType
from common.upgrade.traffic_record import WHOLE, ClusterTraffic, Record
from service_reconciler import recorded_decisions
from service_reconciler.observed import Names, Observed
from service_reconciler.resources import services

log = structlog.get_logger()


def _build_family(name: str, text: str, *labels: str) -> MetricFamily:
    return MetricFamily(name=name, text=text, labels=("name", "namespace", "uid", *labels))


INFO: Final = _build_family(
    "kuberay_service_info", "Metadata information about RayService custom resources"
)
_CONDITIONS: Final = {
    ConditionType.READY: _build_family(
        "kuberay_service_condition_ready",
        "Describes whether the RayService is ready. Ready means users can send requests to the "
        "underlying cluster and the "
        "number of serve endpoints is greater than 0.",
        "condition",
    ),
    ConditionType.UPGRADE_IN_PROGRESS: _build_family(
        "kuberay_service_condition_upgrade_in_progress",
        "Describes whether the RayService is performing a zero-downtime upgrade.",
        "condition",
    ),
    ConditionType.ROLLBACK_IN_PROGRESS: _build_family(
        "raybus_service_condition_rollback_in_progress",
        "Whether an upgrade of the RayService is being taken back",
        "condition",
    ),
    ConditionType.UPGRADE_PAUSED: _build_family(
        "raybus_service_condition_upgrade_paused",
        "Whether an upgrade of the RayService is held where it is",
        "condition",
    ),
    ConditionType.UPGRADE_STALLED: _build_family(
        "raybus_service_condition_upgrade_stalled",
        "Whether an upgrade of the RayService made no progress within its deadline",
        "condition",
    ),
    ConditionType.UPGRADE_ABORTED: _build_family(
        "raybus_service_condition_upgrade_aborted",
        "Whether the RayService stays on its active cluster, whatever its spec asks for",
        "condition",
    ),
}
PHASE: Final = _build_family(
    "raybus_service_upgrade_phase",
    "1 for what the upgrade of the RayService is at: Idle, Starting, Preparing, Shifting, "
    "RollingBack or Draining",
    "phase",
)
UPGRADE_AGE: Final = _build_family(
    "raybus_service_upgrade_age_seconds", "Time since the upgrade began that is on"
)
STEP_AGE: Final = _build_family(
    "raybus_service_step_age_seconds",
    "Time since a weight or a capacity last changed, while an upgrade is on",
)
TRAFFIC: Final = _build_family(
    "raybus_service_traffic_percent", "Share of the requests that a cluster gets", "cluster", "role"
)
TARGET: Final = _build_family(
    "raybus_service_target_capacity_percent",
    "Capacity that a cluster was given, of what the Serve config asks for",
    *("cluster", "role"),
)
RUNNING: Final = _build_family(
    "raybus_service_ready_capacity_percent",
    "Capacity that was seen to run in a cluster, of what the Serve config asks for",
    *("cluster", "role"),
)
POLL_AGE: Final = _build_family(
    "raybus_serve_poll_age_seconds",
    "Time since Serve last answered in a cluster; before its first answer, since it was first "
    "asked",
    *("cluster", "role"),
)
OVERWRITTEN: Final = _build_family(
    "raybus_service_route_overwritten_timestamp_seconds",
    "When somebody else last replaced the backends of the RayService on its HTTPRoute, as Unix "
    "time",
    "manager",
)
LAST_SECONDS: Final = _build_family(
    "raybus_service_last_upgrade_seconds",
    "How long the last upgrade took: preparing, shifting, draining",
    *("phase", "outcome"),
)
LAST_FINISHED: Final = _build_family(
    "raybus_service_last_upgrade_finished_timestamp_seconds",
    "When the last upgrade ended, as Unix time",
    "outcome",
)
LAST_CUT: Final = _build_family(
    "raybus_service_last_upgrade_requests_cut",
    "Requests in flight when the last upgrade deleted the cluster that it left behind",
)
LAST_LOWEST: Final = _build_family(
    "raybus_service_last_upgrade_lowest_capacity_percent",
    "Least capacity that both clusters had together during the last upgrade",
)
LAST_SURGE: Final = _build_family(
    "raybus_service_last_upgrade_peak_surge_percent",
    "Most capacity beyond 100 that both clusters had together during the last upgrade",
)
FAMILIES: Final = (
    *(
        INFO,
        *_CONDITIONS.values(),
        PHASE,
        UPGRADE_AGE,
        STEP_AGE,
        TRAFFIC,
        TARGET,
        RUNNING,
        POLL_AGE,
    ),
    *(LAST_SECONDS, LAST_FINISHED, LAST_CUT, LAST_LOWEST, LAST_SURGE, OVERWRITTEN),
)

UPGRADES: Final = Counter("raybus_upgrades_total", "Upgrades that ended", ["outcome"])
UPGRADE_SECONDS: Final = Histogram(
    "raybus_upgrade_duration_seconds",
    "How long upgrades took that ended: preparing, shifting, draining, total",
    ["phase"],
    buckets=(1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400),
)
DRAINS: Final = Counter(
    "raybus_drains_total",
    "Clusters that were deleted after a drain, by what was in flight then: quiet, cut (requests) "
    "or unknown",
    ["result"],
)
EVENTS: Final = Counter(
    "raybus_upgrade_events_total",
    "Upgrade events that were published or lost, by kind and result",
    ["kind", "result"],
)
CUT: Final = Counter(
    "raybus_drain_requests_cut_total", "Requests in flight when their cluster was deleted"
)


class Phase(StrEnum):
    """Phases of an upgrade, in their usual order."""

    IDLE = "Idle"
    STARTING = "Starting"
    """The first cluster is being created."""
    PREPARING = "Preparing"
    """The new cluster starts and gets no traffic yet."""
    SHIFTING = "Shifting"
    ROLLING_BACK = "RollingBack"
    DRAINING = "Draining"
    """All traffic has moved, and the cluster without traffic is not deleted yet."""


Sample = tuple[MetricFamily, tuple[str, ...], float]


def initialize() -> None:
    """Create every counter series with value 0, so that Prometheus sees the first increase."""
    for outcome in UpgradeOutcome:
        UPGRADES.labels(outcome)
    for result in ("quiet", "cut", "unknown"):
        DRAINS.labels(result)
    for kind, result in product(upgrade_events.KINDS, ("sent", "lost")):
        EVENTS.labels(kind, result)
    for phase in ("preparing", "shifting", "draining", "total"):
        UPGRADE_SECONDS.labels(phase)


def note(observed: Observed, action: Action) -> None:
    """Count an upgrade after its receipt was written, and a drain after its cluster was deleted."""
    match action:
        case Annotate(name=labels.UPGRADE_RECEIPT, value=str(value)):
            receipt = msgspec.json.decode(value, type=Receipt)
            UPGRADES.labels(receipt.outcome).inc()
            for name, seconds in msgspec.structs.asdict(receipt.seconds).items():
                UPGRADE_SECONDS.labels(name).observe(seconds)
            UPGRADE_SECONDS.labels("total").observe(
                (receipt.finished - receipt.started).total_seconds()
            )
        case Delete(resource=resource, uid=uid) if resource is RAY_CLUSTER:
            for ongoing in (
                draining_cluster.ongoing
                for draining_cluster in observed.draining
                if draining_cluster.cluster.metadata.uid == uid
            ):
                DRAINS.labels("unknown" if ongoing is None else "cut" if ongoing else "quiet").inc()
                CUT.inc(ongoing or 0)
        case _:
            pass


class RayServiceCollector(Collector):
    """Computes all gauges about the RayServices that this replica reconciles."""

    def __init__(
        self,
        cache: Cache,
        seen: Callable[[RayCluster], tuple[ServeDetails | None, float] | None],
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._seen = seen
        """Function that returns the last answer of a cluster's Serve with its age in seconds.

        It returns None before the first answer, and never sends a request.
        """
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples, without reading the cache."""
        return [family.empty() for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Compute every series from the current cache."""
        built = {family: family.empty() for family in FAMILIES}
        now = self._clock.now()
        services = sorted(
            self._cache.list_all(RayService),
            key=lambda service: (service.metadata.namespace, service.metadata.name),
        )
        for service in services:
            meta = service.metadata
            identity = (meta.name, meta.namespace, meta.uid)
            try:
                samples = list(self._samples(service, now=now))
            except Exception as problem:  # noqa: BLE001  (one bad object must not hide the others)
                log.warning(
                    "RayService left out of the metrics",
                    object=f"{meta.namespace}/{meta.name}",
                    why=repr(problem),
                )
                continue
            for family, more, value in samples:
                built[family].add_metric((*identity, *more), value)
        return built.values()

    def _samples(self, service: RayService, *, now: datetime) -> Iterator[Sample]:
        meta, before = service.metadata, service.status.conditions
        routes = dict.fromkeys((weighted_route.name_of(service), names.http_route(meta.name)))
        record = weighted_route.record_of(
            service, [self._cache.get(HttpRoute, meta.namespace, route) for route in routes]
        )
        clusters = self._cache.list(RayCluster, meta.namespace, owner.marks(meta.name))
        yield INFO, (), 1
        for kind, family in _CONDITIONS.items():
            yield family, ("true" if conditions.is_true(before, kind) else "false",), 1
        yield PHASE, (_get_phase(service, record, clusters),), 1
        began = conditions.find(before, ConditionType.UPGRADE_IN_PROGRESS)
        if began is not None and began.status == "True":
            yield UPGRADE_AGE, (), (now - began.last_transition_time).total_seconds()
            if record.changed_at is not None:
                yield STEP_AGE, (), (now - record.changed_at).total_seconds()
        if record.overwritten is not UNSET:
            yield OVERWRITTEN, (record.overwritten.by,), record.overwritten.at.timestamp()
        if (last := receipt_of(service)) is not None:
            for name, seconds in msgspec.structs.asdict(last.seconds).items():
                yield LAST_SECONDS, (name, last.outcome), seconds
            yield LAST_FINISHED, (last.outcome,), last.finished.timestamp()
            amounts = (last.requests_cut, last.lowest_capacity_percent, last.peak_surge_percent)
            for family, amount in zip((LAST_CUT, LAST_LOWEST, LAST_SURGE), amounts, strict=True):
                if amount is not None:
                    yield family, (), amount
        yield from self._sample_clusters(service, record, clusters)

    def _sample_clusters(
        self, service: RayService, record: Record, clusters: list[RayCluster]
    ) -> Iterator[Sample]:
        """Yield the samples of the active and the pending cluster.

        Without a traffic record, all traffic counts for the cluster that the Serve Service selects.
        """
        namespace, names = service.metadata.namespace, Names.from_status(service.status)
        roles = {names.active: "active", names.pending: "pending"}
        selected = services.selected(
            self._cache.get(Service, namespace, services.serve_name(service))
        )
        for cluster in clusters:
            name = cluster.metadata.name
            if (role := roles.get(name)) is None:
                continue
            whole = ClusterTraffic(capacity=WHOLE, weight=WHOLE if name == selected else 0)
            share = (
                record.clusters.get(name, ClusterTraffic(capacity=0, weight=0))
                if record.clusters
                else whole
            )
            yield TRAFFIC, (name, role), share.weight
            yield TARGET, (name, role), share.capacity
            running = 0.0
            if (seen := self._seen(cluster)) is not None:
                details, age = seen
                yield POLL_AGE, (name, role), age
                if details is not None and serve_status.is_running(details):
                    running = (
                        serve_status.capacity(details)
                        * serve_status.running_percent(details)
                        / WHOLE
                    )
            yield RUNNING, (name, role), running


def _get_phase(service: RayService, record: Record, clusters: Iterable[RayCluster]) -> Phase:
    """Return the phase of a RayService's upgrade.

    `clusters` are all clusters with the labels of the RayService.
    """
    names = Names.from_status(service.status)
    if recorded_decisions.is_rolling_back(service):
        return Phase.ROLLING_BACK
    if names.pending:
        share = record.clusters.get(names.pending)
        moved = Phase.SHIFTING if share is not None and share.weight else Phase.PREPARING
        return moved if names.active else Phase.STARTING
    drains = any(
        cluster.metadata.name != names.active
        and cluster.metadata.deletion_timestamp is None
        and labels.DELETE_AFTER in cluster.metadata.annotations
        for cluster in clusters
    )
    return Phase.DRAINING if drains else Phase.IDLE
