"""Metrics of this service."""

from typing import Final

from prometheus_client import Counter

NOT_SUPPORTED: Final = Counter(
    "raybus_weighted_routes_not_supported_total", "Times that users were told that weighted routes are not supported"
)
