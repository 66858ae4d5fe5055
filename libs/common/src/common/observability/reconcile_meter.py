"""Metrics of one controller: its reconciles and its queue, under controller-runtime's names (spec raycluster §16).

It is called several times in each reconcile, so every series is looked up once, at the start; what can be counted is read from the
queue at each scrape instead.
"""

from typing import Final, Protocol

from common.observability import metrics

RESULTS: Final = ("success", "requeue_after", "requeue", "error")
"""As controller-runtime has them; ours never ask for a plain "requeue"."""


class Queue(Protocol):
    """Figures that can be read from a work queue at any time."""

    def __len__(self) -> int: ...

    def longest_wait(self) -> float:
        """Return for how many seconds the key has waited that waits longest."""
        ...

    def under_way(self) -> list[float]:
        """Return for how many seconds each key in work has been in work."""
        ...


class ReconcileMeter:
    """The series of one controller; `common.runtime.work_queue` and `controller` report to it."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._results = {result: metrics.RECONCILES.labels(controller, result) for result in RESULTS}
        self._seconds = metrics.RECONCILE_SECONDS.labels(controller)
        self._errors = metrics.RECONCILE_ERRORS.labels(controller)
        self._invariants = metrics.INVARIANTS.labels(controller)
        self._adds = metrics.QUEUE_ADDS.labels(controller, controller)
        self._wait = metrics.QUEUE_WAIT.labels(controller, controller)
        self._work = metrics.QUEUE_WORK.labels(controller, controller)
        self._retries = metrics.QUEUE_RETRIES.labels(controller, controller)

    def follow(self, queue: Queue) -> None:
        """Read from a queue, at each scrape, what it holds then."""
        name = self._controller
        metrics.QUEUE_DEPTH.labels(name, name).set_function(lambda: len(queue))
        metrics.QUEUE_OLDEST.labels(name, name).set_function(queue.longest_wait)
        metrics.QUEUE_UNFINISHED.labels(name, name).set_function(lambda: sum(queue.under_way()))
        metrics.QUEUE_LONGEST.labels(name, name).set_function(lambda: max(queue.under_way(), default=0.0))
        metrics.ACTIVE_WORKERS.labels(name).set_function(lambda: len(queue.under_way()))

    def workers(self, count: int) -> None:
        """Set how many reconciles may be under way together."""
        metrics.MOST_WORKERS.labels(self._controller).set(count)

    def added(self) -> None:
        """Count a key that waits now."""
        self._adds.inc()

    def waited(self, seconds: float) -> None:
        """Record how long a key waited that is taken now."""
        self._wait.observe(seconds)

    def worked(self, seconds: float) -> None:
        """Record how long a key was in work."""
        self._work.observe(seconds)

    def reconciled(self, result: str, seconds: float) -> None:
        """Count a reconcile by its result."""
        self._results[result].inc()
        self._seconds.observe(seconds)

    def failed(self) -> None:
        """Count a reconcile that failed and is repeated."""
        self._errors.inc()
        self._retries.inc()

    def violated(self) -> None:
        """Count a reconcile that met a bug of ours."""
        self._invariants.inc()
