"""Gauges and counters that are computed at each scrape from the state as it is then, so that a series ends with its object."""

import msgspec
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The description of such a metric; `docs/metrics.md` is written from it."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False
    """Whether it is counted elsewhere, such as in a server, and begins at 0 when that starts anew."""

    def empty(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Return the family without series."""
        kind = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        return kind(self.name, self.text, labels=self.labels)
