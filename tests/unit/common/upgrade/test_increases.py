"""Requests between reads: per series, over resets, gaps, series that come and go, nodes that leave and return."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.ray.dashboard import Target
from common.ray.request_metrics import ALL, NodeSeries, Requests, Series
from common.runtime.background import Background
from common.upgrade import increases, windows
from common.upgrade.candidate import Candidate
from common.upgrade.gates import Window
from common.upgrade.increases import Increase, Nodes, Tally
from common.upgrade.windows import Windows
from support.fakes.clock import FakeClock

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
UIDS, WORKERS, STATUSES = ("one", "two"), ("a", "b"), ("200", "500")
Values = Mapping[tuple[str, str], int]
"""Numbers of requests by the process that answered them and by their status."""
CANDIDATE = Candidate(cluster_uid="u", config="c")


class Cluster:
    """Nodes of the pending cluster of an upgrade, which answer requests, restart, and become
    unreachable.
    """

    def __init__(self, *, is_unused: bool = False) -> None:
        self.clock = FakeClock()
        self.windows = Windows(cast("Any", self), Background(), self.clock)
        self.is_unused = is_unused
        self.moved = 0
        self.values: dict[str, dict[tuple[str, str], int]] = {uid: {} for uid in UIDS}
        self.hidden: set[tuple[str, str]] = set()
        """Processes whose node does not export their series."""
        self.away: set[str] = set()
        """Names of nodes that are not ready."""
        self.silent: set[str] = set()
        """Names of nodes that do not answer."""

    def answer(
        self, requests: int, uid: str = "one", worker: str = "a", status: str = "200"
    ) -> None:
        values = self.values[uid]
        values[worker, status] = values.get((worker, status), 0) + requests

    def end(self, uid: str, worker: str) -> None:
        """End a process of a node, together with its series."""
        kept = self.values[uid].items()
        self.values[uid] = {key: value for key, value in kept if key[0] != worker}

    def shown(self, uid: str) -> Values:
        values = self.values[uid].items()
        return {key: value for key, value in values if (uid, key[0]) not in self.hidden}

    async def metrics(self, _node: Target, uid: str, read: Callable[[bytes], T]) -> T | None:
        name = "ray_serve_num_http_requests_total"
        labels = 'WorkerId="{}",status_code="{}",application="a",route="/"'
        series = self.shown(uid).items()
        page = [f"{name}{{{labels.format(*key)}}} {value}\n" for key, value in series]
        return None if uid in self.silent else read(("ray_x 1\n" + "".join(page)).encode())

    async def read(self) -> Window | None:
        self.clock.advance(windows.AGE)
        place = Target(namespace="ns", name="pod", ip="192.0.2.1", port=1)
        nodes = {uid: place for uid in UIDS if uid not in self.away}
        moved_at = START + timedelta(minutes=self.moved)
        is_unused = self.is_unused
        return await self.windows.read_window(
            CANDIDATE, {}, nodes, moved_at=moved_at, is_unused=is_unused
        )

    async def totals(self) -> tuple[int, int]:
        """Read the nodes; return the numbers of requests and errors in the window of the step."""
        window = await self.read()
        assert window is not None
        found = window.pending.get(ALL, Requests())
        return found.total, found.errors


async def test_a_series_that_ends_leaves_the_others_as_they_were() -> None:
    cluster = Cluster()
    cluster.answer(1000, status="500")
    cluster.answer(9000, worker="b")
    await cluster.read()
    cluster.end("one", "b")
    cluster.answer(10)
    assert await cluster.totals() == (10, 0)


async def test_a_process_that_begins_counts_from_its_first_request() -> None:
    cluster = Cluster()
    await cluster.read()
    cluster.answer(3, status="500", worker="b")
    assert await cluster.totals() == (3, 3)


async def test_a_series_that_was_away_counts_what_was_answered_meanwhile() -> None:
    cluster = Cluster()
    cluster.answer(1000)
    await cluster.read()
    cluster.hidden = {("one", "a")}
    assert await cluster.totals() == (0, 0)
    cluster.answer(10)
    cluster.hidden = set()
    assert await cluster.totals() == (10, 0)


@pytest.mark.parametrize("is_unused", [False, True])
async def test_a_node_that_was_not_ready_is_neither_skipped_nor_counted_twice(
    *, is_unused: bool
) -> None:
    cluster = Cluster(is_unused=is_unused)
    cluster.answer(1000)
    await cluster.read()
    cluster.away = {"one"}
    await cluster.read()
    cluster.answer(10)
    cluster.away = set()
    assert await cluster.totals() == (1010 if is_unused else 10, 0)


async def test_what_a_node_answered_before_the_weights_changed_is_of_no_window_when_it_returns() -> (
    None
):
    cluster = Cluster()
    await cluster.read()
    cluster.away = {"one"}
    cluster.answer(500, status="500")
    await cluster.read()
    cluster.moved += 1
    await cluster.read()
    cluster.away = set()
    assert await cluster.totals() == (0, 0)
    cluster.answer(7)
    assert await cluster.totals() == (7, 0)


class Reference:
    """All reads of a cluster, from which the requests of a window are recounted each time."""

    def __init__(self, *, is_unused: bool) -> None:
        self.is_unused = is_unused
        self.read = 0
        self.began = 0
        self.reads: dict[str, list[tuple[int, Values]]] = {uid: [] for uid in UIDS}
        self.answered: list[tuple[int, int]] = []
        """Groups of requests: the number of the last read before each group, and its size."""

    def see(self, cluster: Cluster) -> None:
        self.read += 1
        for uid in UIDS:
            if uid not in cluster.away | cluster.silent:
                self.reads[uid].append((self.read, cluster.shown(uid)))

    def requests(self) -> int:
        return sum(self._of_node(reads) for reads in self.reads.values())

    def _of_node(self, reads: list[tuple[int, Values]]) -> int:
        return sum(
            self._of_series([(read, values.get(key)) for read, values in reads])
            for key in {key for _, values in reads for key in values}
        )

    def _of_series(self, samples: list[tuple[int, int | None]]) -> int:
        found, previous = 0, ((0, 0) if self.is_unused else None)
        for read, value in samples:
            if value is not None:
                if previous is not None and previous[0] >= self.began:
                    found += value - previous[1] if value >= previous[1] else value
                previous = read, value
            elif previous is None or previous[1] == 0:
                previous = read, 0  # the node was read, and had no such series yet
        return found


EVENTS = st.one_of(
    st.tuples(
        st.just("answer"),
        st.integers(1, 9),
        st.sampled_from(UIDS),
        st.sampled_from(WORKERS),
        st.sampled_from(STATUSES),
    ),
    st.tuples(st.sampled_from(("end", "hide", "show")), st.sampled_from(UIDS), st.sampled_from(WORKERS)),
    st.tuples(st.sampled_from(("away", "silent", "back")), st.sampled_from(UIDS)),
    st.just(("move",)),
)  # fmt: skip


@given(st.lists(st.lists(EVENTS, max_size=6), max_size=12), st.booleans())
@settings(max_examples=300, deadline=None)
async def test_a_window_has_what_a_count_over_all_reads_has(
    steps: list[list[tuple[Any, ...]]], is_unused: bool
) -> None:
    cluster, reference = Cluster(is_unused=is_unused), Reference(is_unused=is_unused)
    for events in steps:
        for name, *place in events:
            match name:
                case "answer":
                    cluster.answer(*place)
                    reference.answered.append((reference.read, place[0]))
                case "end":
                    cluster.end(*place)
                case "hide" if any(
                    place[1] == worker
                    for _, values in reference.reads[place[0]]
                    for worker, _ in values
                ):
                    cluster.hidden.add((place[0], place[1]))
                case "show":
                    cluster.hidden.discard((place[0], place[1]))
                case "away" | "silent":
                    getattr(cluster, name).add(place[0])
                case "back":
                    cluster.away.discard(place[0])
                    cluster.silent.discard(place[0])
                case "move":
                    cluster.moved += 1
                    reference.began = reference.read
                case _:
                    pass
        requests, _ = await cluster.totals()
        reference.see(cluster)
        assert requests == reference.requests()


# --- limits ------------------------------------------------------------------------------------------------------------


def series(count: int, *, first: int = 0, value: int = 1) -> NodeSeries:
    found = Series("/", Requests(total=value))
    return dict.fromkeys(range(first, first + count), found)


def total(found: list[Increase]) -> int:
    tally = Tally()
    increases.count([tally], found)
    return tally.answered[ALL].total


def read(nodes: Nodes, uid: str, page: NodeSeries) -> int:
    """Read a node of a cluster that counts from zero; return the requests that it answered."""
    is_new = not nodes.is_cut
    node, found = increases.advance(nodes.get(uid), page, read=nodes.read, is_new=is_new)
    nodes.put(uid, node)
    return total(found)


def test_beyond_the_limit_no_further_node_is_counted() -> None:
    nodes, half = Nodes(), increases.MAX_VALUES_TO_ADMIT
    nodes.read = 1
    assert read(nodes, "one", series(half - 1)) == half - 1
    read(nodes, "two", series(1))
    for number in (2, 3):
        nodes.read = number
        assert read(nodes, "one", series(half - 1, value=number)) == half - 1
        assert read(nodes, "two", series(1, value=number)) == 0
    assert nodes.size == half


def test_what_is_away_makes_room_and_is_not_counted_twice() -> None:
    nodes, half = Nodes(), increases.MAX_VALUES_TO_ADMIT
    for number in range(1, 9):
        nodes.read = number
        read(nodes, "one", series(half - 1, first=half * number))
    assert nodes.size <= increases.MAX_VALUES
    nodes.read = 9
    assert read(nodes, "one", series(half - 1, first=half)) == 0


def test_a_node_that_grows_beyond_the_limit_is_not_counted_any_more() -> None:
    nodes = Nodes()
    nodes.read = 1
    read(nodes, "one", series(9))
    nodes.read = 2
    read(nodes, "one", series(increases.MAX_VALUES))
    assert (nodes.size, nodes.get("one")) == (0, None)
    nodes.read = 3
    assert read(nodes, "one", series(9, value=5)) == 0
    nodes.read = 4
    assert read(nodes, "one", series(9, value=7)) == 18


def test_nodes_that_are_gone_make_room() -> None:
    nodes, page = Nodes(), series(increases.MAX_VALUES_TO_ADMIT // 4)
    for number in range(1, 40):
        nodes.read = number
        read(nodes, f"pod {number}", page)
        assert nodes.get(f"pod {number}") is not None
        assert nodes.size <= increases.MAX_VALUES
