"""Metrics of the sharding: how many partitions each replica holds, and how old its Lease is."""

from typing import Final

from prometheus_client import Counter, Gauge

PARTITIONS_HELD: Final = Gauge("raybus_partitions_held", "Partitions of the 64 that this replica holds", ["controller"])
PARTITIONS_LOADING: Final = Gauge(
    "raybus_partitions_loading", "How many of those it may not decide about yet", ["controller"]
)
HANDOVERS: Final = Counter(
    "raybus_partition_handovers_total", "Partitions that were acquired, released or lost", ["controller", "direction"]
)
LEASE_AGE: Final = Gauge("raybus_lease_age_seconds", "Time since this replica renewed its own Lease", ["lease"])
FENCED: Final = Counter(
    "raybus_fenced_writes_total", "Writes that were refused because the Lease was not sure any more"
)
