"""The gates of an UpgradePolicy, and how each is read from a manifest.

A gate is one of two kinds: a limit on what Ray's nodes measure, or the answer of a webhook.
"""

import re
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import msgspec

from common.upgrade.fields import Fields

MOST_GATES: Final = 10
LARGEST_INCREASE: Final = 1000
"""Percent."""
LOWEST_QUANTILE: Final = 0.5
HIGHEST_QUANTILE: Final = 0.999
MOST_REQUESTS: Final = 10**6
"""That a gate awaits."""
LEAST_REQUESTS: Final = 100
"""Where a gate does not state how many it awaits."""
LONGEST_URL: Final = 500
URL: Final = re.compile(
    r"https?://([A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&'()*+,;=:@/?%-]{0,499})?"
)
"""Without a user, a password and a fragment."""


class Metric(StrEnum):
    """What a gate measures."""

    ERROR_RATE = "errorRate"
    LATENCY = "latency"
    TIME_TO_FIRST_TOKEN = "timeToFirstToken"  # noqa: S105 - of a language model


SPELLINGS: Final = {
    **{metric.value: (metric, None) for metric in Metric},
    **{f"{Metric.LATENCY}P{percent}": (Metric.LATENCY, percent / 100) for percent in (50, 90, 95, 99)},
}
"""What `metric` may be, with the quantile that it names."""


class Kind(StrEnum):
    """The field of a gate that makes its kind."""

    METRIC = "metric"
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


class WebhookGate(msgspec.Struct, frozen=True, kw_only=True):
    """A server of the user that decides each step."""

    title: str
    """The name that messages have for it: `webhook`, or with several `webhook[2]`, by the position in the policy."""
    url: str
    """Messages name its host alone: a path or a query may hold a token."""

    @property
    def host(self) -> str:
        """Return the server, for messages."""
        return urlsplit(self.url).netloc


AnyGate = Gate | WebhookGate


def read(spec: Fields) -> tuple[AnyGate, ...]:
    """Return the gates of a policy."""
    parts = spec.sections("gates", MOST_GATES)
    kinds = [_kind(each) for each in parts]
    several = {kind for kind, count in Counter(kinds).items() if count > 1}
    found: list[AnyGate] = []
    for position, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        match kind:
            case Kind.METRIC:
                found.append(_metric(part))
            case Kind.WEBHOOK:
                found.append(_webhook(part, f"{kind}[{position}]" if kind in several else kind))
            case None:
                pass
    return tuple(found)


def asking(gates: Iterable[AnyGate]) -> tuple[WebhookGate, ...]:
    """Return the gates that ask a server."""
    return tuple(each for each in gates if isinstance(each, WebhookGate))


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
        gate.note("quantile", f"{spelling} takes none; remove it" + (f", or write {metric}" if is_duration else ""))
    limit, increase = gate.has("max"), gate.has("maxIncrease")
    if limit == increase:
        gate.note(
            "max",
            f"{'max and maxIncrease are both' if limit else 'neither max nor maxIncrease is'} there; state one of them",
        )
    found = Gate(
        metric=metric,
        quantile=quantile,
        max=(gate.seconds("max") if is_duration else gate.percent("max", most=100)) if limit else None,
        max_increase=gate.percent("maxIncrease", most=LARGEST_INCREASE) if increase else None,
        min_requests=gate.number("minRequests", 1, MOST_REQUESTS, LEAST_REQUESTS),
    )
    gate.close()
    return found


def _webhook(gate: Fields, title: str) -> WebhookGate:
    part = gate.section(Kind.WEBHOOK)
    url = "" if part is None else _url(part, "url")
    if part is not None:
        part.close()
    gate.close()
    return WebhookGate(title=title, url=url)


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
