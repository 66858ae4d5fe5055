"""Metrics that every service has.

Where controller-runtime or client-go have a metric, its name and labels are theirs, as KubeRay
registers them (spec raycluster §16). Metrics of these libraries without a counterpart here are not
exported: our client has no rate limit and does not repeat requests. To save time, series are looked
up once and kept. Values such as the depth of a queue are computed at each scrape.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Final

import msgspec
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily


class MetricFamily(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that is computed at each scrape, so that the series of a deleted object disappears.

    `docs/metrics.md` is generated from it.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    is_counter: bool = False
    """Whether the values are counters of another process, which restart at 0 with that process."""

    def empty(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Return a metric family without series."""
        kind = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        return kind(self.name, self.text, labels=self.labels)


_RECONCILE_BUCKETS: Final = (
    *(
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.15,
        0.2,
        0.25,
        0.3,
        0.35,
        0.4,
        0.45,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
    ),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5),
    *(5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)
_QUEUE_BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 4))
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_BYTE_BUCKETS: Final = (64, 256, 512, 1024, *(4096 * 4**step for step in range(7)))
_QUEUE: Final = ("name", "controller")
"""Labels of queue metrics. Both have the same value; KubeRay's dashboards read `controller`."""

RECONCILES: Final = Counter(
    "controller_runtime_reconcile_total",
    "Reconciles by controller and result",
    ["controller", "result"],
)
RECONCILE_ERRORS: Final = Counter(
    "controller_runtime_reconcile_errors_total", "Reconciles that ended in an error", ["controller"]
)
RECONCILE_SECONDS: Final = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "Length of a reconcile",
    ["controller"],
    buckets=_RECONCILE_BUCKETS,
)
ACTIVE_WORKERS: Final = Gauge(
    "controller_runtime_active_workers", "Reconciles in progress", ["controller"]
)
WORKERS_LIMIT: Final = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Limit of concurrent reconciles", ["controller"]
)
QUEUE_ADDS: Final = Counter("workqueue_adds_total", "Keys that were put into the queue", _QUEUE)
QUEUE_DEPTH: Final = Gauge("workqueue_depth", "Keys that wait for a reconcile", _QUEUE)
QUEUE_WAIT: Final = Histogram(
    "workqueue_queue_duration_seconds",
    "Wait of keys before their reconcile",
    _QUEUE,
    buckets=_QUEUE_BUCKETS,
)
QUEUE_WORK: Final = Histogram(
    "workqueue_work_duration_seconds", "How long keys were in work", _QUEUE, buckets=_QUEUE_BUCKETS
)
QUEUE_RETRIES: Final = Counter(
    "workqueue_retries_total", "Reconciles that are retried after a failure", _QUEUE
)
QUEUE_UNFINISHED: Final = Gauge(
    "workqueue_unfinished_work_seconds",
    "Time in work of all keys that are in work now, added up",
    _QUEUE,
)
QUEUE_LONGEST: Final = Gauge(
    "workqueue_longest_running_processor_seconds",
    "Time in work of the key that is in work for longest",
    _QUEUE,
)
QUEUE_OLDEST: Final = Gauge(
    "raybus_queue_longest_wait_seconds",
    "How long the key has waited that waits for longest now",
    _QUEUE,
)
REQUESTS: Final = Counter(
    "rest_client_requests_total",
    "Requests to the API server by status code, method and host",
    ["code", "method", "host"],
)
REQUEST_SECONDS: Final = Histogram(
    "rest_client_request_duration_seconds",
    "Time until the API server begins to answer, or has not done so in time",
    ["verb", "host"],
    buckets=_REQUEST_BUCKETS,
)
REQUEST_BYTES: Final = Histogram(
    "rest_client_request_size_bytes",
    "Size of what was sent to the API server",
    ["verb", "host"],
    buckets=_BYTE_BUCKETS,
)
ANSWER_BYTES: Final = Histogram(
    "rest_client_response_size_bytes",
    "Size of the API server's answers, watches aside",
    ["verb", "host"],
    buckets=_BYTE_BUCKETS,
)
EVENT_LOOP_LAG: Final = Histogram(
    "raybus_event_loop_lag_seconds",
    "How much later than planned the event loop runs a timer: for so long nothing else of "
    "the process ran",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
UNDECODABLE: Final = Counter(
    "raybus_undecodable_messages_total",
    "State messages that were skipped, or are not readable",
    ["controller", "kind"],
)
STATE_UNREADABLE: Final = Gauge(
    "raybus_state_unreadable",
    "1 while the watcher publishes a form that this build does not read: nothing is decided",
)
INVARIANTS: Final = Counter(
    "raybus_invariant_violations_total",
    "Reconciles that failed because of a bug of raybus",
    ["controller"],
)
BUS_CONNECTED: Final = Gauge("raybus_bus_connected", "1 while the connection to NATS stands")
BUS_CERTIFICATE_END: Final = Gauge(
    "raybus_nats_certificate_expiry_timestamp_seconds",
    "Unix time in seconds at which a certificate of the NATS connection that stands ends "
    "(server or authority)",
    ["certificate"],
)
STATE_RELOADS: Final = Counter(
    "raybus_state_reloads_total",
    "Reloads of a partition of the state stream, by reason",
    ["reason"],
)
PARTITIONS_HELD: Final = Gauge(
    "raybus_partitions_held", "Partitions of the 64 that this replica holds", ["controller"]
)
PARTITIONS_LOADING: Final = Gauge(
    "raybus_partitions_loading", "How many of those it may not decide about yet", ["controller"]
)
HANDOVERS: Final = Counter(
    "raybus_partition_handovers_total",
    "Partitions that were acquired, released or lost",
    ["controller", "direction"],
)
LEASE_AGE: Final = Gauge(
    "raybus_lease_age_seconds", "Time since this replica renewed its own Lease", ["lease"]
)
FENCED: Final = Counter(
    "raybus_fenced_writes_total", "Writes that were refused because the Lease was not sure any more"
)

RESULTS: Final = ("success", "requeue_after", "requeue", "error")
"""Values of controller-runtime's label `result`. "requeue" is never counted."""
UNANSWERED: Final = "<error>"
"""Value of the label `code` for a request without an answer, as in client-go."""
PERIOD_SECONDS: Final = 0.25
_series_of: Final = cache(Histogram.labels)


class ReconcileMeter:
    """The metrics of one controller: its reconciles and its work queue."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self.results = {result: RECONCILES.labels(controller, result) for result in RESULTS}
        self.seconds = RECONCILE_SECONDS.labels(controller)
        self.errors = RECONCILE_ERRORS.labels(controller)
        self.invariants = INVARIANTS.labels(controller)
        self.workers = WORKERS_LIMIT.labels(controller)
        self.adds = QUEUE_ADDS.labels(controller, controller)
        self.wait = QUEUE_WAIT.labels(controller, controller)
        self.work = QUEUE_WORK.labels(controller, controller)
        self.retries = QUEUE_RETRIES.labels(controller, controller)

    def follow(
        self,
        depth: Callable[[], int],
        longest_wait: Callable[[], float],
        under_way: Callable[[], list[float]],
    ) -> None:
        """Export the state of a work queue, which is read at each scrape.

        `depth` returns the number of waiting keys, `longest_wait` the longest wait in seconds, and
        `under_way` the seconds since the start of each reconcile in progress.
        """
        name = self._controller
        QUEUE_DEPTH.labels(name, name).set_function(depth)
        QUEUE_OLDEST.labels(name, name).set_function(longest_wait)
        QUEUE_UNFINISHED.labels(name, name).set_function(lambda: sum(under_way()))
        QUEUE_LONGEST.labels(name, name).set_function(lambda: max(under_way(), default=0.0))
        ACTIVE_WORKERS.labels(name).set_function(lambda: len(under_way()))


class RequestMeter:
    """The metrics of the requests to one API server."""

    def __init__(self, host: str) -> None:
        self._host = host

    def sent(self, verb: str, body: bytes | None) -> None:
        _series_of(REQUEST_BYTES, verb, self._host).observe(len(body or b""))

    def answered(self, verb: str, code: str, seconds: float) -> None:
        """Count an answer by its status code (or `UNANSWERED`), and record its duration."""
        REQUESTS.labels(code, verb, self._host).inc()
        _series_of(REQUEST_SECONDS, verb, self._host).observe(seconds)

    def read(self, verb: str, body: bytes) -> None:
        _series_of(ANSWER_BYTES, verb, self._host).observe(len(body))


def measure_lag(loop: asyncio.AbstractEventLoop) -> None:
    """Measure how late the event loop runs a timer, until the loop is closed.

    There is a measurement every `PERIOD_SECONDS`.
    """

    def tick(due: float) -> None:
        now = loop.time()
        EVENT_LOOP_LAG.observe(max(0.0, now - due))
        loop.call_at(now + PERIOD_SECONDS, tick, now + PERIOD_SECONDS)

    tick(loop.time())
