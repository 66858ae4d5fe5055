"""The gates of an UpgradePolicy, and how each is read from a manifest.

A gate is of one kind: a limit on what Ray's nodes measure, a limit on what Prometheus answers to a query, or the answer of a webhook.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec
import re2

from common.upgrade.fields import Fields

MOST_GATES: Final = 10
MOST_STEPS: Final = 20
"""Of a policy; at each the outcomes of all gates are recorded."""
LARGEST_INCREASE: Final = 1000
"""Percent."""
LOWEST_QUANTILE: Final = 0.5
HIGHEST_QUANTILE: Final = 0.999
MOST_REQUESTS: Final = 10**6
"""That a gate awaits."""
LEAST_REQUESTS: Final = 100
"""Where a gate does not state how many it awaits."""
LONGEST_URL: Final = 500
URL: Final = re2.compile(
    r"https?://([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@/?%-]{0,499})?"
)
"""Without a user, a password and a fragment."""

LONGEST_QUERY: Final = 1000
QUERY: Final = re2.compile(r"[\t\n -~]{1,1000}")
"""PromQL has escapes for other characters."""
LEGAL_QUERY: Final = (
    "a query of PromQL, of 1 to 1000 printable ASCII characters, tabs and line feeds"
)
PLACEHOLDERS: Final = ("namespace", "service", "activeCluster", "pendingCluster")
"""Of a query, each after a dollar sign."""
PLACED: Final = re2.compile(rf"([^$]|[$][$]|[$](?:{'|'.join(PLACEHOLDERS)})\b|[$][^$A-Za-z_])*[$]?")
"""A query that names no other placeholder; `$$` is a dollar sign."""
PLACEHOLDER: Final = re2.compile(r"[$](?:[$]|([A-Za-z_]\w*))?")


class Metric(StrEnum):
    """What a gate measures."""

    ERROR_RATE = "errorRate"
    LATENCY = "latency"
    TIME_TO_FIRST_TOKEN = "timeToFirstToken"  # noqa: S105 - of a language model


SPELLINGS: Final = {
    **{metric.value: (metric, None) for metric in Metric},
    **{
        f"{Metric.LATENCY}P{percent}": (Metric.LATENCY, percent / 100)
        for percent in (50, 90, 95, 99)
    },
}
"""What `metric` may be, with the quantile that it names."""


class Kind(StrEnum):
    """The field of a gate that makes its kind."""

    METRIC = "metric"
    PROMETHEUS = "prometheus"
    WEBHOOK = "webhook"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on what the pending cluster's requests show."""

    metric: Metric
    quantile: float | None = None
    """Of a duration; none for the error rate."""
    max: float | None = None
    """The limit itself: a fraction of the requests, or seconds."""
    max_increase: float | None = None
    """The limit as a growth over the active cluster's value: 0.3 is 30 %."""
    min_requests: int = LEAST_REQUESTS
    """Requests without which the gate does not pass."""

    @property
    def title(self) -> str:
        """Return the name that messages have for it: `errorRate`, `latencyP95`."""
        return self.metric if self.quantile is None else f"{self.metric}P{100 * self.quantile:g}"


class _Server(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    """The name that messages have for it: `webhook`, or with several `webhook[2]`, by the position in the policy."""
    url: str
    """Messages name its host alone: a path or a query may hold a token."""

    @property
    def host(self) -> str:
        """Return the server, for messages."""
        return urlsplit(self.url).netloc


class WebhookGate(_Server, frozen=True, kw_only=True):
    """A server of the user that decides each step."""

    FIELD: ClassVar = f"{Kind.WEBHOOK}.url"


class PrometheusGate(_Server, frozen=True, kw_only=True):
    """A limit on what a Prometheus of the user answers to a query; one of `max` and `min` is there."""

    FIELD: ClassVar = f"{Kind.PROMETHEUS}.address"
    query: str
    max: float | None = None
    min: float | None = None

    @property
    def limit(self) -> float:
        """Return the limit."""
        return self.min or 0.0 if self.max is None else self.max

    def holds(self, value: float) -> bool:
        """Return whether a value is within the limit."""
        return value >= self.limit if self.max is None else value <= self.limit


AskingGate = WebhookGate | PrometheusGate
AnyGate = Gate | AskingGate


def read(spec: Fields) -> tuple[AnyGate, ...]:
    """Return the gates of a policy."""
    parts = spec.sections("gates", MOST_GATES)
    kinds = [_kind(each) for each in parts]
    found: list[AnyGate] = []
    for position, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        title = f"{kind}[{position}]" if kinds.count(kind) > 1 else f"{kind}"
        if kind is Kind.METRIC:
            found.append(_metric(part))
        elif kind is not None:
            reader = _webhook if kind is Kind.WEBHOOK else _prometheus
            found.append(part.read(partial(reader, title=title)))
    return tuple(found)


def asking(gates: Iterable[AnyGate], *, is_before: bool = False) -> tuple[AskingGate, ...]:
    """Return the gates that ask a server; before the first step alone those that decide something there.

    A query about requests has no value before there are any.
    """
    found = (each for each in gates if not isinstance(each, Gate))
    return tuple(each for each in found if isinstance(each, WebhookGate) or not is_before)


def _kind(part: Fields) -> Kind | None:
    kinds = [each for each in Kind if part.has(each)]
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
        return Gate(metric=Metric.ERROR_RATE)  # what else is legal depends on the metric
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
    found = Gate(
        metric=metric,
        quantile=quantile,
        max=(gate.seconds("max") if is_duration else gate.percent("max", most=100))
        if limit
        else None,
        max_increase=gate.percent("maxIncrease", most=LARGEST_INCREASE) if increase else None,
        min_requests=gate.number("minRequests", 1, MOST_REQUESTS, LEAST_REQUESTS),
    )
    gate.close()
    return found


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
    named = (each[1] for each in PLACEHOLDER.finditer(query))
    if (
        unknown := next((each for each in named if each not in {None, *PLACEHOLDERS}), None)
    ) is not None:
        legal = ", ".join(f"${each}" for each in PLACEHOLDERS)
        part.note(
            "query",
            f"${unknown[:40]} is not a placeholder; these are: {legal}; write $$ for a dollar sign",
        )
    return url, query


def _either(gate: Fields, first: str, second: str) -> tuple[bool, bool]:
    """Return which of two fields is there, of which a gate has one."""
    has_first, has_second = gate.has(first), gate.has(second)
    if has_first == has_second:
        held = f"{first} and {second} are both" if has_first else f"neither {first} nor {second} is"
        gate.note(first, f"{held} there; state one of them")
    return has_first, has_second


def _url(part: Fields, name: str) -> str:
    legal = f"https://HOST or http://HOST, with a port and a path where needed, of at most {LONGEST_URL} characters, without a user and a fragment"
    return part.text(name, is_url, legal)


def is_url(text: str) -> bool:
    """Return whether a text is the address of a server."""
    if len(text) > LONGEST_URL or URL.fullmatch(text) is None:
        return False
    try:
        return urlsplit(text).port != 0
    except ValueError:  # a port above 65535, or what is no address between brackets
        return False
