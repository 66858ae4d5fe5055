"""Splits the victim's reaction times by what they waited for, from the audit log. Does no I/O.

Time in which the API server handles one of raybus's requests for the object counts for the API
server. Other time between the creation of one of the object's pods and its readiness counts for the
simulated nodes. The rest counts for raybus, NATS and the dashboards.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

from support.audit_log import ACCOUNT, Line

Interval = tuple[float, float]
"""Begin and end, in seconds since the epoch."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One reaction: from the change of a victim's object until the object has reached its goal.

    Times are in seconds since the epoch.
    """

    name: str
    """Name of the changed object. The names of its children begin with it."""
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Seconds that the reaction took."""
        return self.ended - self.began


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Mean seconds per reaction spent waiting for the API server, nodes, and everything else."""

    api_server: float
    nodes: float
    rest: float
    slowest_hundredth: list[float] = []
    """The means of `api_server`, `nodes` and `rest` over the slowest 1 % of the reactions."""


def compute_shares(spans: Sequence[Span], lines: Iterable[Line]) -> Shares:
    """Return the mean wait of reactions (`spans`) for each cause. `lines` is the audit log."""
    asked, pods = _list_intervals(lines)
    by_length = sorted(
        ((span.seconds, _split_reaction(span, asked, pods)) for span in spans), reverse=True
    )
    parts = [part for _, part in by_length]
    slowest = parts[: max(1, len(parts) // 100)]
    api_server, nodes, rest = _get_means(parts)
    return Shares(
        api_server=api_server, nodes=nodes, rest=rest, slowest_hundredth=_get_means(slowest)
    )


def _get_means(parts: Sequence[tuple[float, float, float]]) -> list[float]:
    return [
        round(fmean(part[number] for part in parts), 3) if parts else 0.0 for number in range(3)
    ]


def _split_reaction(
    span: Span, asked: list[tuple[float, float, str]], pods: list[tuple[float, float, str]]
) -> tuple[float, float, float]:
    during = _clip_intervals(span, asked)
    api_server = _get_covered_length(during)
    both = _get_covered_length([*during, *_clip_intervals(span, pods)])
    return api_server, both - api_server, span.seconds - both


def _clip_intervals(span: Span, intervals: list[tuple[float, float, str]]) -> list[Interval]:
    first = bisect_left(intervals, (span.began - 60.0, 0.0, ""))
    found: list[Interval] = []
    for began, ended, name in intervals[first:]:
        if began >= span.ended:
            break
        if ended > span.began and name.startswith(span.name):
            found.append((max(began, span.began), min(ended, span.ended)))
    return found


def _get_covered_length(intervals: list[Interval]) -> float:
    """Return the total length of the union of intervals."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def _list_intervals(
    lines: Iterable[Line],
) -> tuple[list[tuple[float, float, str]], list[tuple[float, float, str]]]:
    """Return the intervals of raybus's requests, and those of starting pods.

    Each interval has a begin, an end, and the name of the object or pod.
    """
    asked: list[tuple[float, float, str]] = []
    created: dict[str, float] = {}
    ready: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        if line.began is None or line.ended is None or line.verb == "watch":
            continue
        what, ended = line.object_ref, line.ended.timestamp()
        if line.user.username.startswith(ACCOUNT):
            asked.append((line.began.timestamp(), ended, what.name))
            if (line.verb, what.resource) == ("create", "pods"):
                created[what.name] = ended
        elif what.resource == "pods" and what.subresource == "status":
            ready.setdefault(what.name, ended)
    pods = [(began, ready[name], name) for name, began in created.items() if name in ready]
    return sorted(asked), sorted(pods)
