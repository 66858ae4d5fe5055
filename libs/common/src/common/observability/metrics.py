"""Metrics that every service has; names and labels as controller-runtime's where it has them (spec raycluster §16)."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

RECONCILES: Final = Counter(
    "controller_runtime_reconcile_total", "Reconciles by controller and result", ["controller", "result"]
)
RECONCILE_ERRORS: Final = Counter(
    "controller_runtime_reconcile_errors_total", "Reconciles that ended in an error", ["controller"]
)
RECONCILE_SECONDS: Final = Histogram(
    "controller_runtime_reconcile_time_seconds", "Length of a reconcile in seconds", ["controller"]
)
ACTIVE_WORKERS: Final = Gauge("controller_runtime_active_workers", "Reconciles under way", ["controller"])
MOST_WORKERS: Final = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Reconciles that may be under way together", ["controller"]
)
QUEUE_DEPTH: Final = Gauge("workqueue_depth", "Keys that wait for a look", ["name"])
QUEUE_RETRIES: Final = Counter("workqueue_retries_total", "Looks that are repeated after a failure", ["name"])
REQUESTS: Final = Counter(
    "rest_client_requests_total",
    "Requests to the API server by status code, method and host",
    ["code", "method", "host"],
)
UNDECODABLE: Final = Counter("raybus_undecodable_messages_total", "State messages skipped", ["controller", "kind"])
INVARIANTS: Final = Counter("raybus_invariant_violations_total", "Reconciles that met a bug of ours", ["controller"])
BUS_CONNECTED: Final = Gauge("raybus_bus_connected", "1 while the connection to NATS stands")
STATE_RELOADS: Final = Counter("raybus_state_reloads_total", "Reloads of the state stream, by reason", ["reason"])
