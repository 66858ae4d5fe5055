"""Metrics of the division of work among replicas: who holds how much, and since when it has been sure of that."""

from typing import Final

from prometheus_client import Counter, Gauge

PARTITIONS_HELD: Final = Gauge(
    "raybus_partitions_held", "How many of the 64 partitions this replica looks after", ["controller"]
)
PARTITIONS_LOADING: Final = Gauge(
    "raybus_partitions_loading", "How many of those it may not decide about yet", ["controller"]
)
HANDOVERS: Final = Counter(
    "raybus_partition_handovers_total", "Partitions that were taken, given away or lost", ["controller", "direction"]
)
LEASE_AGE: Final = Gauge("raybus_lease_age_seconds", "Time since this replica renewed its own Lease", ["lease"])
FENCED: Final = Counter(
    "raybus_fenced_writes_total", "Writes that were refused because the Lease was not sure any more"
)
