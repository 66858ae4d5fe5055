"""The metrics of the watcher."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

LEADER: Final = Gauge("raybus_watcher_leader", "1 while this replica holds the Lease and publishes")
MASTER: Final = Gauge(
    "leader_election_master_status",
    "1 while this replica holds the Lease, under client-go's name",
    ["name"],
)
SYNCED: Final = Gauge(
    "raybus_watcher_synced", "1 while the stream holds the whole state of the API server"
)
WATCH_AGE: Final = Gauge(
    "raybus_watch_silence_seconds",
    "Seconds since the API server last sent anything on a watch",
    ["watch"],
)
PUBLISHED: Final = Counter(
    "raybus_watcher_published_total", "Messages stored in the state stream", ["kind"]
)
UNCHANGED: Final = Counter(
    "raybus_watcher_unchanged_total",
    "Objects that the stream already held in this version",
    ["kind"],
)
CONFLICTS: Final = Counter(
    "raybus_watcher_conflicts_total",
    "Publishes refused because the subject held another message than expected",
)
REFUSED: Final = Counter(
    "raybus_watcher_refused_total", "Objects that the server refuses to store", ["kind"]
)
QUARANTINED: Final = Counter(
    "raybus_watcher_quarantined_total",
    "States that cannot be published, each of one object; its readers wait",
    ["kind"],
)
FULL: Final = Gauge(
    "raybus_watcher_stream_full", "1 while the state stream has no room for another message"
)
STREAM_BYTES: Final = Gauge("raybus_watcher_stream_bytes", "Bytes that the state stream holds")
PUBLISH_SECONDS: Final = Histogram(
    "raybus_watcher_publish_seconds",
    "Time from the decision to publish to the stream's answer in seconds",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0),
)
PENDING: Final = Gauge(
    "raybus_watcher_pending", "Subjects with a newest state that is not stored yet"
)
OBJECTS: Final = Gauge("raybus_watcher_objects", "Objects that the stream holds")
EPOCHS: Final = Counter(
    "raybus_watcher_epochs_total", "Times that the watcher listed everything and published the rest"
)
