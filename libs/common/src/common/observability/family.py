"""Gauges that are computed at each scrape from the state as it is then, so that a series ends with its object."""

import msgspec
from prometheus_client.metrics_core import GaugeMetricFamily


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of such a gauge; `docs/metrics.md` is written from it."""

    name: str
    text: str
    labels: tuple[str, ...] = ()

    def empty(self) -> GaugeMetricFamily:
        """Return the family without series."""
        return GaugeMetricFamily(self.name, self.text, labels=self.labels)
