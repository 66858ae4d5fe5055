"""KubeRay's gauges about RayServices, computed at scrape from the cache, so that they vanish with the object (§13.5)."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from common.api.ray_service import RayService
from common.bus.cache import Cache
from service_reconciler.reasons import ConditionType
from service_reconciler.status import conditions

INFO: Final = "Metadata information about RayService custom resources"
READY: Final = (
    "Describes whether the RayService is ready. Ready means users can send requests to the underlying cluster and the "
    "number of serve endpoints is greater than 0."
)
UPGRADING: Final = "Describes whether the RayService is performing a zero-downtime upgrade."


class RayServiceCollector(Collector):
    """Three gauge families over all RayServices of this replica."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        services = sorted(self._cache.all(RayService), key=lambda each: (each.metadata.namespace, each.metadata.name))
        info = GaugeMetricFamily("kuberay_service_info", INFO, labels=["name", "namespace", "uid"])
        for each in services:
            info.add_metric(_identity(each), 1)
        yield info
        yield _family("kuberay_service_condition_ready", READY, services, ConditionType.READY)
        yield _family(
            "kuberay_service_condition_upgrade_in_progress", UPGRADING, services, ConditionType.UPGRADE_IN_PROGRESS
        )


def _family(name: str, text: str, services: Iterable[RayService], kind: ConditionType) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["name", "namespace", "uid", "condition"])
    for each in services:
        value = "true" if conditions.is_true(each.status.conditions, kind) else "false"
        family.add_metric([*_identity(each), value], 1)
    return family


def _identity(service: RayService) -> list[str]:
    meta = service.metadata
    return [meta.name, meta.namespace, meta.uid]
