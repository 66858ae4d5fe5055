"""The sources of gates' decisions: servers and metrics with changing answers, all of them recorded.

A process may receive an answer late, or lose it. All answers are recorded here, and `laws` judge by
them what a process did with them.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from common import errors
from common.api.opaque import Json
from common.upgrade import prometheus
from common.upgrade.outbound import OutboundRequest
from common.upgrade.webhook import Answer
from support.fakes import prometheus as values
from support.fakes.clock import FakeClock
from support.fakes.webhook import replies

WEBHOOK: Final = "https://checks.example.com/a"
PROMETHEUS: Final = "http://prom.example.com:9090"
LIMIT: Final = "0.5"
MAX_PASS: Final = 30.0
"""Seconds for which a pass may act on a value that it read: all stops between two boundaries."""
GATES: Final[dict[str, Json]] = {
    "errors": {"metric": "errorRate", "max": "5%", "minRequests": 20},
    "more errors": {"metric": "errorRate", "maxIncrease": "50%", "minRequests": 20},
    "webhook": {"webhook": {"url": WEBHOOK}},
    "prometheus": {
        "prometheus": {"address": PROMETHEUS, "query": 'errors{cluster="$pendingCluster"}'},
        "max": LIMIT,
    },
}
FAILING: Final = 0.5
"""Fraction of the requests of a bad version that fail."""


def _answer(answer: Answer) -> Callable[[], Answer]:
    return lambda: answer


def _silent() -> Answer:
    raise errors.Unavailable("does not answer within 10 s")


ANSWERS: Final[dict[str, dict[str, Callable[[], Answer]]]] = {
    "webhook": {
        "good": _answer(replies("Pass")),
        "bad": _answer(replies("Fail", "wrong answers")),
        "wait": _answer(replies("Wait", "tests run", retry_after="5")),
        "silent": _silent,
        "garbage": _answer(Answer(status=200, body=b"<html>Pass</html>")),
        "error": _answer(Answer(status=503)),
    },
    "prometheus": {
        "good": _answer(values.vector("0.1")),
        "bad": _answer(values.vector("0.9")),
        "none": _answer(values.vector()),
        "nan": _answer(values.vector("NaN")),
        "several": _answer(values.vector("0.1", "0.2")),
        "silent": _silent,
    },
    "metrics": {"good": _silent, "bad": _silent, "none": _silent},
}
"""Possible answers of each source, except metrics of Ray's nodes, which are read elsewhere."""


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a source, one after another and repeatedly."""

    answers: tuple[str, ...] = ("good",)
    seconds: float = 10.0
    """Seconds for which each answer is given."""

    def at(self, seconds: float) -> str:
        """Return the answer after some seconds."""
        return self.answers[int(seconds / self.seconds) % len(self.answers)]


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a question about a cluster."""

    at: float
    answer: str
    config: str = ""
    """Serve config that the cluster ran."""
    beyond: int = 0
    """Number of consecutive bad values of Prometheus, up to this answer."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that a cluster answered."""

    all: float = 0.0
    well: float = 0.0


class Sources:
    """The servers of gates; implements `common.upgrade.outbound.Outbound`."""

    def __init__(self, turns: dict[str, Turns]) -> None:
        self._turns = turns
        self.clock = FakeClock()
        self.turns_from: float | None = None
        """Time since which the sources answer in turn; None while all answers are good."""
        self.at_weights: dict[tuple[str, int], _Asked] = {}
        """The last answer of the webhook, by cluster and weight."""
        self.values: dict[str, _Asked] = {}
        """The last answer of Prometheus, by cluster."""
        self.proven_bad: set[str] = set()
        """Clusters that a source found bad."""
        self.deployed: Callable[[str], str] = lambda _: ""
        """Function that returns the Serve config that a cluster runs."""

    def now(self, source: str) -> str:
        """Return what a source answers now."""
        if self.turns_from is None:
            return "good"
        return self._turns.get(source, Turns()).at(self.clock.monotonic() - self.turns_from)

    def refusal(self, url: str, namespace: str) -> str | None:
        return None

    async def send(self, request: OutboundRequest) -> Answer:
        source, at = "prometheus" if request.body is None else "webhook", self.clock.monotonic()
        answer = self.now(source)
        if request.body is None:
            cluster = request.url.partition("%7Bcluster%3D%22")[2].partition("%22")[0]
            before, config = self.values.get(cluster), self.deployed(cluster)
            beyond = before.beyond if before is not None and before.config == config else 0
            beyond = beyond + 1 if answer == "bad" else 0
            asked = _Asked(at=at, answer=answer, config=config, beyond=beyond)
            self.values[cluster] = asked
            is_bad = asked.beyond >= prometheus.EVIDENCE
        else:
            question: Any = msgspec.json.decode(request.body)
            cluster = question["pendingCluster"]
            asked = _Asked(at=at, answer=answer, config=self.deployed(cluster))
            self.at_weights[cluster, question["weight"]] = asked
            is_bad = answer == "bad"
        self.proven_bad |= {cluster} if is_bad else set()
        return ANSWERS[source][answer]()

    def unmet(
        self,
        gate: Json,
        cluster: str,
        weight: int,
        since: float,
        answered: Count,
        *,
        in_steps: bool,
    ) -> bool:
        """Return whether a cluster has not met a gate at a weight that it has had since then; `answered` counts from then on.

        A window of requests begins and ends up to a read late, so one with good requests may be good whatever came before and after.
        """
        is_first, config = weight == 0 and in_steps, self.deployed(cluster)
        if "webhook" in gate:
            held = self.at_weights.get((cluster, weight))
            is_good = held is not None and (held.answer, held.config) == ("good", config)
            return not is_good or held is None or (weight > 0 and held.at < since)
        if "prometheus" in gate:
            held = self.values.get(cluster)
            held = None if held is not None and held.config != config else held
            oldest = max(
                since if weight else 0.0, self.clock.monotonic() - prometheus.FRESH - MAX_PASS
            )
            return not is_first and (held is None or held.answer != "good" or held.at < oldest)
        return not is_first and (answered.all < gate["minRequests"] or answered.well <= 0)
