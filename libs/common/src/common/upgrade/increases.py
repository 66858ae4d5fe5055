"""Count the requests that a cluster's nodes answered between two reads of their counters.

The increase of each series is computed separately, as by Prometheus' `increase`: if a value became
smaller, it was reset, and the new value counts in full. Three rules differ from Prometheus:

- A new series on a node that was read before counts from zero. It may be the first error, which
  Prometheus would not count.
- If a series or a node was missing in some reads, its increase is computed from its last value.
- An increase has the number of the read at which it begins. A window of requests leaves out
  increases that began before the window.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.ray import request_metrics
from common.ray.request_metrics import NodeSeries, Requests, Sample, Series

MAX_VALUES: Final = 32_768
"""Maximum number of counter values that are remembered for one cluster.

A counter has one value, a histogram one for each bucket. A proxy with 3 routes and 2 status codes
has 126 values. If there is no room, missing series and missing nodes are dropped first, and then
the new node as a whole, since a part of its series could hide errors. The requests of the other
nodes are a sample."""
MAX_VALUES_TO_ADMIT: Final = MAX_VALUES // 2
"""Number of values above which no new node is remembered.

The remembered nodes need the rest for new series.
"""


class _Value(msgspec.Struct, frozen=True):
    requests: Requests
    read: int
    """Number of the last read that had this series."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The last counter values of one node."""

    series: Mapping[int, _Value]
    read: int
    """Number of the node's last read."""
    is_cut: bool = False
    """Whether a series was dropped. If so, an unknown series may not be new."""
    size: int
    """Number of values, plus one for the node itself; `MAX_VALUES` limits the sum of sizes."""


class Increase(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that a node has answered since an earlier read."""

    since: int
    """Number of the read since which the requests were answered."""
    requests: Sample


def advance(
    node: Node | None, series: NodeSeries, *, read: int, is_new: bool
) -> tuple[Node, list[Increase]]:
    """Return a node's new state after read number `read`, and its requests since earlier reads.

    `series` are the counters on the node's metrics page. If the node is unknown (None), this read
    is the starting point, and there are no requests yet. With `is_new`, all requests that an
    unknown node has ever answered are returned, as if since read 0.
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
    values = {key: _Value(one_series.requests, read) for key, one_series in series.items()}
    return _node({**before, **values}, read=read, is_cut=is_cut), [
        Increase(since=since, requests=request_metrics.by_route(parts))
        for since, parts in increases.items()
    ]


def _node(series: Mapping[int, _Value], *, read: int, is_cut: bool) -> Node:
    size = 1 + sum(request_metrics.size(one_series.requests) for one_series in series.values())
    return Node(series=series, read=read, is_cut=is_cut, size=size)


def _without_absent(node: Node) -> Node:
    """Return a node without the series that were missing in its last read."""
    present = {
        key: one_series for key, one_series in node.series.items() if one_series.read == node.read
    }
    if len(present) == len(node.series):
        return node
    return _node(present, read=node.read, is_cut=True)


class Nodes(msgspec.Struct):
    """The last counter values of all nodes of a cluster, at most `MAX_VALUES`."""

    read: int = 0
    """Number of the last read, or of the one in progress."""
    is_cut: bool = False
    """Whether a node was dropped. If so, an unknown node may not be new."""
    size: int = 0
    _nodes: dict[str, Node] = {}
    """The nodes, by the UID of their pod."""
    _trimmed: int = 0
    """Number of the read in which missing nodes and series were last dropped."""

    def get(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def put(self, uid: str, node: Node) -> None:
        """Remember a node's state after a read; drop the node if there is no room."""
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
        """Drop nodes and series that were missing in the last reads; only once for each read."""
        if self._trimmed == self.read:
            return
        self._trimmed = self.read
        kept = {uid: node for uid, node in self._nodes.items() if node.read >= self.read - 1}
        self.is_cut = self.is_cut or len(kept) < len(self._nodes)
        self._nodes = {uid: _without_absent(node) for uid, node in kept.items()}
        self.size = sum(node.size for node in self._nodes.values())


class Tally(msgspec.Struct):
    """The requests that a cluster has answered since the read with the number `since`."""

    since: int = 0
    answered: Sample = {}


def count(tallies: list[Tally], increases: list[Increase]) -> None:
    """Add each increase to all tallies that began before it or at the same read."""
    for since in {tally.since for tally in tallies}:
        new = request_metrics.total(
            increase.requests for increase in increases if increase.since >= since
        )
        for tally in tallies:
            if tally.since == since:
                tally.answered = request_metrics.total((tally.answered, new))
