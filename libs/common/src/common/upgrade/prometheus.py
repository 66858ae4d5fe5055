"""The Prometheus gate: build its query and interpret the answers.

A query is sent every `EVERY` seconds. The gate passes while the last value is within the limit and
at most `FRESH` seconds old. It fails after `EVIDENCE` consecutive values beyond the limit, since a
single outlier must not be enough. A missing value neither passes nor fails the gate.
"""

from math import isnan
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
import re2

from common import errors, untrusted
from common.upgrade import gates
from common.upgrade.gate_types import PLACEHOLDER, PrometheusGate
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.webhook import OK, Answer, Checkpoint, quoted

EVERY: Final = 15.0
"""Seconds from an answer to the next query."""
FRESH: Final = 30.0
"""Seconds for which a value is valid: twice `EVERY`, because the next query may be slow."""
EVIDENCE: Final = 3
"""Number of consecutive values beyond the limit with which a gate fails."""
MAX_ANSWER_SIZE: Final = 64 * 2**10
"""Maximum bytes of an answer."""
SECONDS: Final = 10.0
"""Timeout of one query, in seconds."""
_NUMBER: Final = re2.compile(r"[-+]?([0-9]{1,400}([.][0-9]{0,400})?([eE][-+]?[0-9]{1,4})?|Inf)|NaN")
_AGGREGATE: Final = "have the query return one, as by sum(...) or max(...)"


class _Body(msgspec.Struct, frozen=True):
    status: str
    data: "_Data | None" = None
    error: str = ""


class _Data(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="resultType")
    result: msgspec.Raw


class _Series(msgspec.Struct, frozen=True):
    value: tuple[float, str] | None = None
    """Time and value of the sample; None if the series is a histogram."""


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a query at one step: the last one, and how many were beyond the limit."""

    value: float | None = None
    """The last value; None if the last query had none."""
    at: float = 0.0
    """Time of the last value, in seconds of a monotonic clock."""
    beyond: int = 0
    """Number of values beyond the limit since the last value within it."""


def url(step: Checkpoint, gate: PrometheusGate) -> str:
    """Return the URL of a query. It requests only two series, to detect more than one."""
    asked = {"query": query(step, gate), "timeout": f"{SECONDS:g}s", "limit": "2"}
    return f"{gate.url.rstrip('/')}/api/v1/query?{urlencode(asked, quote_via=quote)}"


def query(step: Checkpoint, gate: PrometheusGate) -> str:
    """Return the query with its placeholders replaced by the names of an upgrade's objects.

    The names are DNS names, so they cannot end a string in PromQL.
    """
    names = {
        "namespace": step.namespace,
        "service": step.service,
        "activeCluster": step.old,
        "pendingCluster": step.new,
    }
    return PLACEHOLDER.sub(
        lambda match: "$" if match[1] is None else names.get(match[1], match[0]), gate.query
    )


def read(answer: Answer) -> float:
    """Return the value in an answer; raise `Unavailable` if there is none.

    The error quotes nothing of the body except Prometheus' own error text, shortened.
    """
    no_answer = answer.shown_status if answer.status != OK else "did not answer as Prometheus does"
    if untrusted.is_too_deep(answer.body):
        raise errors.Unavailable(no_answer)
    try:
        body = msgspec.json.decode(answer.body, type=_Body)
        if body.status == "error":
            raise errors.Unavailable(f"answered status {answer.status}: {quoted(body.error)}")
        if answer.status != OK or body.status != "success" or body.data is None:
            raise errors.Unavailable(no_answer)
        value = _value(body.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise errors.Unavailable(no_answer) from problem
    if _NUMBER.fullmatch(value) is None:
        raise errors.Unavailable(no_answer)
    if isnan(number := float(value)):
        raise errors.Unavailable("answered NaN, which is no value: there may be no requests yet")
    return number


def _value(data: _Data) -> str:
    match data.kind:
        case "scalar":
            return msgspec.json.decode(data.result, type=tuple[float, str])[1]
        case "vector":
            series = msgspec.json.decode(data.result, type=list[_Series])
        case other:
            kind = untrusted.clipped(other, 20)
            raise errors.Unavailable(f"answered a {kind!r}, no scalar or vector; {_AGGREGATE}")
    if not series:
        raise errors.Unavailable("answered no value: no series matches the query yet")
    if len(series) > 1:
        raise errors.Unavailable(f"answered more than one value; {_AGGREGATE}")
    if series[0].value is None:
        raise errors.Unavailable(
            "answered a histogram; have the query return a number, as by histogram_quantile(...)"
        )
    return series[0].value[1]


def after(readings: Readings, gate: PrometheusGate, value: float, *, now: float) -> Readings:
    """Return the readings after another query, which was answered at `now` with `value`."""
    return Readings(value=value, at=now, beyond=0 if gate.holds(value) else readings.beyond + 1)


def result(
    gate: PrometheusGate, readings: Readings, problem: str | None, *, now: float
) -> GateResult:
    """Return the result of a gate from its readings; `problem` says why there is no value."""
    value, beyond = readings.value, readings.beyond
    if problem is not None or value is None:
        return gates.unanswered(gate, problem)
    outcome, text = (
        GateOutcome.PASS,
        f"{value:.6g}, at {'least' if gate.max is None else 'most'} {gate.limit:.6g} allowed",
    )
    if beyond >= EVIDENCE:
        outcome, text = GateOutcome.FAIL, f"{text}, {EVIDENCE} times one after another"
    elif now > readings.at + FRESH:
        outcome, text = (
            GateOutcome.INCONCLUSIVE,
            f"the last value of {gate.host} is older than {FRESH:g} s",
        )
    elif beyond:
        outcome, text = (
            GateOutcome.INCONCLUSIVE,
            f"{text}, {beyond} of the {EVIDENCE} times that fail the gate",
        )
    return GateResult(
        gate=gate, outcome=outcome, value=value, limit=gate.limit, text=f"{gate.title}: {text}"
    )
