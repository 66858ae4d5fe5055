"""Requests to one API server, under client-go's names as KubeRay registers them (spec raycluster §16).

What KubeRay counts and we do not have, we do not export: our client keeps no rate limit, and repeats no request by itself.
"""

from typing import Final

import msgspec
from prometheus_client import Histogram

from common.observability import metrics

UNANSWERED: Final = "<error>"
"""client-go's text in place of a status code."""


class _Verb(msgspec.Struct, frozen=True):
    seconds: Histogram
    sent: Histogram
    answered: Histogram


class RequestMeter:
    """The series of one API server; each is looked up once."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._verbs: dict[str, _Verb] = {}

    def sent(self, method: str, body: bytes | None) -> None:
        """Record what is sent."""
        self._of(method).sent.observe(len(body or b""))

    def answered(self, method: str, code: str, seconds: float) -> None:
        """Count an answer by its code, or that there was none."""
        metrics.REQUESTS.labels(code, method, self._host).inc()
        self._of(method).seconds.observe(seconds)

    def read(self, method: str, body: bytes) -> None:
        """Record an answer's body."""
        self._of(method).answered.observe(len(body))

    def _of(self, method: str) -> _Verb:
        found = self._verbs.get(method)
        if found is None:
            labels = (method, self._host)
            found = self._verbs[method] = _Verb(
                metrics.REQUEST_SECONDS.labels(*labels),
                metrics.REQUEST_BYTES.labels(*labels),
                metrics.ANSWER_BYTES.labels(*labels),
            )
        return found
