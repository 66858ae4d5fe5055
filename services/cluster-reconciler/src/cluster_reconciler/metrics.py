"""Metrics of RayClusters with KubeRay's names (spec raycluster §16; acceptance case 115).

All series are computed from the cache at each scrape, so they vanish with their cluster, survive a
restart, and move with a partition to another replica.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cluster_reconciler.observe import ClusterMemory
from cluster_reconciler.reasons import ConditionType
from common import conditions, labels
from common.api.ray_cluster import RayCluster
from common.observability.metrics import MetricFamily
from common.runtime.cache import Cache
from common.runtime.key import Key

_NAMES: Final = ("name", "namespace", "uid")
DURATION: Final = MetricFamily(
    name="kuberay_cluster_provisioned_duration_seconds",
    text=(
        "The time, in seconds, when a RayCluster's `RayClusterProvisioned` status transitions "
        "from false (or unset) to true"
    ),
    labels=_NAMES,
)
INFO: Final = MetricFamily(
    name="kuberay_cluster_info",
    text="Metadata information about RayCluster custom resources",
    labels=(*_NAMES, "owner_kind"),
)
PROVISIONED: Final = MetricFamily(
    name="kuberay_cluster_condition_provisioned",
    text="Indicates whether the RayCluster is provisioned",
    labels=(*_NAMES, "condition"),
)


class ClusterMetrics(Collector):
    """Collects the series about clusters, such as the time until all pods of a cluster ran."""

    def __init__(
        self,
        cache: Cache,
        memories: Mapping[Key, ClusterMemory],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._cache = cache
        self._memories = memories
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metric families without samples, without reading the cache."""
        return [family.empty() for family in (INFO, PROVISIONED, DURATION)]

    def collect(self) -> Iterator[Metric]:
        """Compute the series of every cluster from the current cache."""
        info, provisioned, durations = INFO.empty(), PROVISIONED.empty(), DURATION.empty()
        for cluster in self._cache.list_all(RayCluster):
            meta = cluster.metadata
            own = (meta.name, meta.namespace, meta.uid)
            condition = conditions.find(cluster.status.conditions, ConditionType.PROVISIONED)
            holds = condition is not None and condition.status == "True"
            info.add_metric((*own, meta.labels.get(labels.ORIGIN_KIND, "None")), 1)
            provisioned.add_metric((*own, str(holds).lower()), 1)
            memory = self._memories.get(Key(meta.namespace, meta.name))
            seconds = (
                memory.provisioned_after if memory is not None and memory.uid == meta.uid else None
            )
            if (
                seconds is None
                and condition is not None
                and holds
                and meta.creation_timestamp is not None
            ):
                seconds = (condition.last_transition_time - meta.creation_timestamp).total_seconds()
            if seconds is not None:
                durations.add_metric(own, seconds)
        yield from (info, provisioned, durations)
