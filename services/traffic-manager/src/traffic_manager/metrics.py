"""Metrics of traffic-manager."""

from typing import Final

from prometheus_client import Counter

CONFIGS_SENT: Final = Counter(
    "raybus_serve_configs_sent_total", "Serve configs and capacities that dashboards accepted"
)
