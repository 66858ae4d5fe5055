"""The kinds of gates of an UpgradePolicy, and how they are read from its spec.

A gate is a limit on a metric of Ray, a limit on the result of a Prometheus query, or a webhook.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec
import re2

from common.upgrade.fields import Fields

MAX_GATES: Final = 10
MAX_STEPS: Final = 20
"""Maximum steps of one policy. It limits the size of the record of the gates' outcomes."""
MAX_INCREASE: Final = 1000
"""Maximum of the field `maxIncrease`, in percent."""
LOWEST_QUANTILE: Final = 0.5
HIGHEST_QUANTILE: Final = 0.999
MAX_REQUESTS: Final = 10**6
"""Maximum of the field `minRequests` of a gate."""
MIN_REQUESTS: Final = 100
"""Default of the field `minRequests` of a gate."""
MAX_URL_LENGTH: Final = 500
URL: Final = re2.compile(
    r"https?://([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@/?%-]{0,499})?"
)
"""Matches the URL of a server, without user, password and fragment."""

MAX_QUERY_LENGTH: Final = 1000
QUERY: Final = re2.compile(r"[\t\n -~]{1,1000}")
"""Matches printable ASCII, tabs and line feeds; PromQL has escapes for other characters."""
LEGAL_QUERY: Final = (
    "a query of PromQL, of 1 to 1000 printable ASCII characters, tabs and line feeds"
)
PLACEHOLDERS: Final = ("namespace", "service", "activeCluster", "pendingCluster")
"""Placeholders that a query may contain, each after a dollar sign."""
PLACED: Final = re2.compile(rf"([^$]|[$][$]|[$](?:{'|'.join(PLACEHOLDERS)})\b|[$][^$A-Za-z_])*[$]?")
"""Matches a query without unknown placeholders. `$$` stands for a dollar sign."""
PLACEHOLDER: Final = re2.compile(r"[$](?:[$]|([A-Za-z_]\w*))?")


class Metric(StrEnum):
    """Metrics of Ray that a gate can limit."""

    ERROR_RATE = "errorRate"
    LATENCY = "latency"
    TIME_TO_FIRST_TOKEN = "timeToFirstToken"  # noqa: S105 - a metric, no secret


SPELLINGS: Final = {
    **{metric.value: (metric, None) for metric in Metric},
    **{
        f"{Metric.LATENCY}P{percent}": (Metric.LATENCY, percent / 100)
        for percent in (50, 90, 95, 99)
    },
}
"""Legal values of the field `metric`, with the quantile in the name, such as 0.95 in `latencyP95`.
"""


class Kind(StrEnum):
    """The kinds of gate. Each value is the name of the field that a gate of this kind has."""

    METRIC = "metric"
    PROMETHEUS = "prometheus"
    WEBHOOK = "webhook"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on a metric of the pending cluster's requests."""

    metric: Metric
    quantile: float | None = None
    """Quantile of the durations that is limited; None for the error rate."""
    max: float | None = None
    """The absolute limit: a fraction of the requests, or seconds."""
    max_increase: float | None = None
    """The limit relative to the active cluster's value: 0.3 allows 30 percent more."""
    min_requests: int = MIN_REQUESTS
    """Minimum number of requests; with fewer, the gate does not pass."""

    @property
    def title(self) -> str:
        """Return the name of the gate in messages, such as `errorRate` or `latencyP95`."""
        return self.metric if self.quantile is None else f"{self.metric}P{100 * self.quantile:g}"


class _Server(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    """Name of the gate in messages: `webhook`, or `webhook[2]` if a policy has several."""
    url: str
    """Address of the webhook or of Prometheus.

    The path or query may contain a token, so messages show only the host.
    """

    @property
    def host(self) -> str:
        """Return host and port, for messages."""
        return urlsplit(self.url).netloc


class WebhookGate(_Server, frozen=True, kw_only=True):
    """A gate at which a server of the user decides whether a step passes."""

    FIELD: ClassVar = f"{Kind.WEBHOOK}.url"


class PrometheusGate(_Server, frozen=True, kw_only=True):
    """A gate that limits the result of a Prometheus query; either `max` or `min` is set."""

    FIELD: ClassVar = f"{Kind.PROMETHEUS}.address"
    query: str
    max: float | None = None
    min: float | None = None

    @property
    def limit(self) -> float:
        return self.min or 0.0 if self.max is None else self.max

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.max is None else value <= self.limit


AskingGate = WebhookGate | PrometheusGate
AnyGate = Gate | AskingGate


def read(spec: Fields) -> tuple[AnyGate, ...]:
    """Read the field `gates` of a policy's spec, and add its problems to those of `spec`."""
    parts = spec.sections("gates", MAX_GATES)
    kinds = [_kind(gate_part) for gate_part in parts]
    gates: list[AnyGate] = []
    for position, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        title = f"{kind}[{position}]" if kinds.count(kind) > 1 else f"{kind}"
        if kind is Kind.METRIC:
            gates.append(_metric(part))
        elif kind is not None:
            reader = _webhook if kind is Kind.WEBHOOK else _prometheus
            gates.append(part.read(partial(reader, title=title)))
    return tuple(gates)


def asking(gates: Iterable[AnyGate], *, is_before: bool = False) -> tuple[AskingGate, ...]:
    """Return the gates that ask a server.

    With `is_before` (before the first step), return only webhooks: a query about requests has no
    result while the pending cluster gets no requests.
    """
    asking_gates = (gate for gate in gates if not isinstance(gate, Gate))
    return tuple(gate for gate in asking_gates if isinstance(gate, WebhookGate) or not is_before)


def _kind(part: Fields) -> Kind | None:
    kinds = [kind for kind in Kind if part.has(kind)]
    if len(kinds) == 1:
        return kinds[0]
    legal = ", ".join(Kind)
    if kinds:
        part.note(kinds[-1], f"{' and '.join(kinds)} are both there; a gate has one of {legal}")
    else:
        part.note(Kind.METRIC, f"is missing; state one of {legal}")
    return None


def _metric(gate: Fields) -> Gate:
    spelling = gate.text("metric", lambda text: text in SPELLINGS, f"one of {', '.join(SPELLINGS)}")
    if spelling not in SPELLINGS:
        return Gate(metric=Metric.ERROR_RATE)  # the other fields depend on the metric
    metric, quantile = SPELLINGS[spelling]
    is_duration = metric is not Metric.ERROR_RATE
    if is_duration and quantile is None:
        quantile = gate.fraction("quantile", LOWEST_QUANTILE, HIGHEST_QUANTILE)
    elif gate.has("quantile"):
        gate.note(
            "quantile",
            f"{spelling} takes none; remove it" + (f", or write {metric}" if is_duration else ""),
        )
    if gate.has("min"):
        gate.note("min", f"is a field of a gate with {Kind.PROMETHEUS}; remove it")
    limit, increase = _either(gate, "max", "maxIncrease")
    measured = Gate(
        metric=metric,
        quantile=quantile,
        max=(gate.seconds("max") if is_duration else gate.percent("max", most=100))
        if limit
        else None,
        max_increase=gate.percent("maxIncrease", most=MAX_INCREASE) if increase else None,
        min_requests=gate.number("minRequests", 1, MAX_REQUESTS, MIN_REQUESTS),
    )
    gate.close()
    return measured


def _webhook(gate: Fields, title: str) -> WebhookGate:
    part = gate.section(Kind.WEBHOOK)
    return WebhookGate(
        title=title, url=part.read(lambda part: _url(part, "url")) if part is not None else ""
    )


def _prometheus(gate: Fields, title: str) -> PrometheusGate:
    part = gate.section(Kind.PROMETHEUS)
    url, query = part.read(_query) if part is not None else ("", "")
    most, least = _either(gate, "max", "min")
    return PrometheusGate(
        title=title,
        url=url,
        query=query,
        max=gate.decimal("max") if most else None,
        min=gate.decimal("min") if least else None,
    )


def _query(part: Fields) -> tuple[str, str]:
    url, query = _url(part, "address"), part.text("query", QUERY.fullmatch, LEGAL_QUERY)
    if "?" in url:
        part.note("address", "has a query; state the address alone, as http://HOST:9090")
    named = (match[1] for match in PLACEHOLDER.finditer(query))
    if (
        unknown := next((name for name in named if name not in {None, *PLACEHOLDERS}), None)
    ) is not None:
        legal = ", ".join(f"${placeholder}" for placeholder in PLACEHOLDERS)
        part.note(
            "query",
            f"${unknown[:40]} is not a placeholder; these are: {legal}; write $$ for a dollar sign",
        )
    return url, query


def _either(gate: Fields, first: str, second: str) -> tuple[bool, bool]:
    """Return for each of two fields whether it is set; report a problem unless exactly one is."""
    has_first, has_second = gate.has(first), gate.has(second)
    if has_first == has_second:
        held = f"{first} and {second} are both" if has_first else f"neither {first} nor {second} is"
        gate.note(first, f"{held} there; state one of them")
    return has_first, has_second


def _url(part: Fields, name: str) -> str:
    legal = (
        "https://HOST or http://HOST, with a port and a path where needed, of at most "
        f"{MAX_URL_LENGTH} characters, without a user and a fragment"
    )
    return part.text(name, is_url, legal)


def is_url(text: str) -> bool:
    """Return whether a text is an HTTP(S) URL that is allowed in a gate."""
    if len(text) > MAX_URL_LENGTH or URL.fullmatch(text) is None:
        return False
    try:
        return urlsplit(text).port != 0
    except ValueError:  # port above 65535, or no IPv6 address in the brackets
        return False
