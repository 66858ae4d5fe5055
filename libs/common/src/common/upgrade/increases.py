"""Requests that the nodes of a cluster answered between two reads of their counters.

The increase of each series is computed alone, as Prometheus' `increase` does: a value that became
smaller was reset, and counts as it is. Three rules are ours:

- A series that appears on a node which was read before counts from zero. It may be the first
  error, which Prometheus would not count.
- A series or a node that was away counts from its last value before.
- An increase names the read that it begins with. A window leaves out those that began before it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.ray import request_metrics
from common.ray.request_metrics import NodeSeries, Requests, Sample, Series

MAX_VALUES: Final = 32_768
"""Values that are remembered of one cluster: one for a counter, one for each bucket of a histogram.

A proxy has 126 with 3 routes and 2 status codes. What is away is dropped first, then whole nodes: a
node that counted in part could hide its errors. The requests of the other nodes are a sample of all.
"""
MAX_VALUES_TO_ADMIT: Final = MAX_VALUES // 2
"""Values beyond which no further node is counted, so that the others have room for new series."""


class _Value(msgspec.Struct, frozen=True):
    """The last value of one series."""

    requests: Requests
    read: int
    """The number of the read that found it."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one node."""

    series: Mapping[int, _Value]
    read: int
    """The number of the node's last read."""
    is_cut: bool = False
    """Whether a series was dropped. Then an unknown series need not be new."""
    size: int
    """How many values these are, and one for the node itself."""


class Increase(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that a node answered between two reads."""

    since: int
    """The number of the earlier read."""
    requests: Sample


def advance(
    node: Node | None, series: NodeSeries, *, read: int, is_new: bool
) -> tuple[Node, list[Increase]]:
    """Return what is remembered of a node after a read, and what it answered since earlier ones.

    A node of which nothing is remembered counts from this read; one that `is_new` counts all that
    it ever answered, since read 0.
    """
    before: Mapping[int, _Value] = {} if node is None else node.series
    is_cut = node is not None and node.is_cut
    began = (0 if is_new else None) if node is None else node.read
    increases: dict[int, list[Series]] = {}
    for key, (route, requests) in series.items():
        value = before.get(key)
        if value is None:
            since, old = None if is_cut else began, Requests()
        else:
            since, old = value.read, value.requests
        if since is not None and requests != old:
            answered = request_metrics.increase(requests, old)
            increases.setdefault(since, []).append(Series(route, answered))
    found = {key: _Value(each.requests, read) for key, each in series.items()}
    return _node({**before, **found}, read=read, is_cut=is_cut), [
        Increase(since=since, requests=request_metrics.by_route(parts))
        for since, parts in increases.items()
    ]


def _node(series: Mapping[int, _Value], *, read: int, is_cut: bool) -> Node:
    size = 1 + sum(request_metrics.size(each.requests) for each in series.values())
    return Node(series=series, read=read, is_cut=is_cut, size=size)


def _without_absent(node: Node) -> Node:
    """Return a node without the series that its last read did not find."""
    present = {key: each for key, each in node.series.items() if each.read == node.read}
    if len(present) == len(node.series):
        return node
    return _node(present, read=node.read, is_cut=True)


class Nodes(msgspec.Struct):
    """What is remembered of the nodes of a cluster."""

    read: int = 0
    """The number of the last read, or of the one that is under way."""
    is_cut: bool = False
    """Whether a node was dropped. Then an unknown node need not be new."""
    size: int = 0
    _nodes: dict[str, Node] = {}
    """By the uid of the pod."""
    _trimmed: int = 0
    """The last read that dropped what was away."""

    def get(self, uid: str) -> Node | None:
        """Return what is remembered of a node."""
        return self._nodes.get(uid)

    def put(self, uid: str, node: Node) -> None:
        """Remember a node after a read, as far as there is room."""
        limit = MAX_VALUES if uid in self._nodes else MAX_VALUES_TO_ADMIT
        self._drop(uid)
        if self.size + node.size > limit:
            node = _without_absent(node)
            self._drop_absent()
        if self.size + node.size > limit:
            self.is_cut = True
            return
        self._nodes[uid] = node
        self.size += node.size

    def _drop(self, uid: str) -> None:
        node = self._nodes.pop(uid, None)
        self.size -= 0 if node is None else node.size

    def _drop_absent(self) -> None:
        """Drop nodes and series that the last reads did not find, once a read."""
        if self._trimmed == self.read:
            return
        self._trimmed = self.read
        kept = {uid: each for uid, each in self._nodes.items() if each.read >= self.read - 1}
        self.is_cut = self.is_cut or len(kept) < len(self._nodes)
        self._nodes = {uid: _without_absent(each) for uid, each in kept.items()}
        self.size = sum(each.size for each in self._nodes.values())


class Tally(msgspec.Struct):
    """The requests that a cluster answered since the read with this number."""

    since: int = 0
    answered: Sample = {}


def count(tallies: list[Tally], increases: list[Increase]) -> None:
    """Add increases to those tallies that began before them."""
    for since in {each.since for each in tallies}:
        new = request_metrics.total(each.requests for each in increases if each.since >= since)
        for tally in tallies:
            if tally.since == since:
                tally.answered = request_metrics.total((tally.answered, new))
