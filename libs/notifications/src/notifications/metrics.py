"""Prometheus metrics of the notifications, labeled with the destination."""

from typing import Final

from prometheus_client import Counter, Gauge

_LABELS: Final = ["destination"]

SENT: Final = Counter(
    "raybus_notifications_sent_total", "Events that the destination accepted", _LABELS
)
FAILED: Final = Counter(
    "raybus_notifications_failed_total",
    "Requests that the destination refused, or did not answer",
    _LABELS,
)
DROPPED: Final = Counter(
    "raybus_notifications_dropped_total",
    "Events that were not delivered and are not tried again",
    _LABELS,
)
NEWEST: Final = Gauge(
    "raybus_notifications_newest_event_timestamp_seconds",
    "Unix time in seconds of the newest event that the destination accepted; 0 before the "
    "first one",
    _LABELS,
)
