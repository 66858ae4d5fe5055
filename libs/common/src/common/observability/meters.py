"""The series of one controller, of one API server, and of the event loop.

They are called several times in each reconcile, so every series is looked up once; what can be counted is read at each scrape instead.
Names are controller-runtime's and client-go's, as KubeRay registers them (spec raycluster §16). What KubeRay counts and we do not have, we
do not export: our client keeps no rate limit, and repeats no request by itself.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Final

from prometheus_client import Histogram

from common.observability import metrics

RESULTS: Final = ("success", "requeue_after", "requeue", "error")
"""As controller-runtime has them; ours never ask for a plain "requeue"."""
UNANSWERED: Final = "<error>"
"""client-go's text in place of a status code."""
PERIOD_SECONDS: Final = 0.1


class ReconcileMeter:
    """The series of one controller: its reconciles and its queue."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self.results = {result: metrics.RECONCILES.labels(controller, result) for result in RESULTS}
        self.seconds = metrics.RECONCILE_SECONDS.labels(controller)
        self.errors = metrics.RECONCILE_ERRORS.labels(controller)
        self.invariants = metrics.INVARIANTS.labels(controller)
        self.workers = metrics.MOST_WORKERS.labels(controller)
        self.adds = metrics.QUEUE_ADDS.labels(controller, controller)
        self.wait = metrics.QUEUE_WAIT.labels(controller, controller)
        self.work = metrics.QUEUE_WORK.labels(controller, controller)
        self.retries = metrics.QUEUE_RETRIES.labels(controller, controller)

    def follow(
        self, depth: Callable[[], int], longest_wait: Callable[[], float], under_way: Callable[[], list[float]]
    ) -> None:
        """Read a queue at each scrape: how many keys wait, how long the first of them has, and for how long each key has been in work."""
        name = self._controller
        metrics.QUEUE_DEPTH.labels(name, name).set_function(depth)
        metrics.QUEUE_OLDEST.labels(name, name).set_function(longest_wait)
        metrics.QUEUE_UNFINISHED.labels(name, name).set_function(lambda: sum(under_way()))
        metrics.QUEUE_LONGEST.labels(name, name).set_function(lambda: max(under_way(), default=0.0))
        metrics.ACTIVE_WORKERS.labels(name).set_function(lambda: len(under_way()))


class RequestMeter:
    """The series of one API server."""

    def __init__(self, host: str) -> None:
        def series_of(verb: str) -> tuple[Histogram, ...]:
            families = (metrics.REQUEST_BYTES, metrics.REQUEST_SECONDS, metrics.ANSWER_BYTES)
            return tuple(each.labels(verb, host) for each in families)

        self._host = host
        self._series_of = cache(series_of)

    def sent(self, verb: str, body: bytes | None) -> None:
        """Record what is sent."""
        self._series_of(verb)[0].observe(len(body or b""))

    def answered(self, verb: str, code: str, seconds: float) -> None:
        """Count an answer by its code, or that there was none."""
        metrics.REQUESTS.labels(code, verb, self._host).inc()
        self._series_of(verb)[1].observe(seconds)

    def read(self, verb: str, body: bytes) -> None:
        """Record an answer's body."""
        self._series_of(verb)[2].observe(len(body))


def measure_lag(loop: asyncio.AbstractEventLoop) -> None:
    """Observe every `PERIOD_SECONDS` how late a loop fires a timer, which whatever ran before held up; until the loop is closed."""

    def tick(due: float) -> None:
        now = loop.time()
        metrics.EVENT_LOOP_LAG.observe(max(0.0, now - due))
        loop.call_at(now + PERIOD_SECONDS, tick, now + PERIOD_SECONDS)

    tick(loop.time())
