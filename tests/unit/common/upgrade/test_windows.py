"""The requests by which gates are judged: since the last change of the weights, and in the windows
within a step.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from common.ray.dashboard import Target
from common.ray.request_metrics import ALL, Sample
from common.runtime.background import Background
from common.upgrade import windows
from common.upgrade.candidate import Candidate
from common.upgrade.gates import Window
from common.upgrade.windows import Windows
from support.fakes.clock import FakeClock

T = TypeVar("T")
FIRST, SECOND = (datetime(2026, 1, 1, 12, minute, tzinfo=UTC) for minute in (0, 1))


class Nodes:
    """Two clusters of one node each, which count their requests."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.counts = {"active": 0, "pending": 0}
        self.config = "v2"
        """Config that the pending cluster runs."""
        self.edit: str | None = None
        """Config that the pending cluster runs from the moment when its nodes are read; None for no
        change."""
        self.moves: tuple[datetime, bool] | None = None
        """Change of the weights that happens while the nodes are read; None for no change."""
        self.restart()

    def restart(self) -> None:
        """Start a new process; reads that were running in the background end at once."""
        self.windows = Windows(cast("Any", self), Background(), self.clock)

    async def metrics(self, _node: Target, uid: str, read: Callable[[bytes], T]) -> T:
        if self.moves is not None:
            (moved_at, is_whole), self.moves = self.moves, None
            assert await self.read(moved_at, is_whole=is_whole, seconds=0) is None
        if self.edit is not None:
            self.config, self.edit = self.edit, None
            assert await self.read(FIRST, seconds=0) is None
        count = self.counts[uid]
        return read(
            f'ray_serve_num_http_requests_total{{application="a",route="/",status_code="200"}} {count}\n'.encode()
        )

    async def read(
        self, moved_at: datetime, *, is_whole: bool = False, seconds: float = windows.AGE
    ) -> Window | None:
        """Advance the time and let the nodes be read."""
        self.clock.advance(seconds)
        clusters = [
            {uid: Target(namespace="ns", name=uid, ip="192.0.2.1", port=1)} for uid in self.counts
        ]
        candidate = Candidate(cluster_uid="upgrade", config=self.config)
        return await self.windows.read_window(
            candidate, *clusters, moved_at=moved_at, is_whole=is_whole
        )

    def answer(self, active: int, pending: int) -> None:
        """Add answered requests to the counters."""
        self.counts = {
            "active": self.counts["active"] + active,
            "pending": self.counts["pending"] + pending,
        }


def total(sample: Sample) -> int:
    return sample[ALL].total if ALL in sample else 0


def totals(window: Window | None) -> tuple[int, int]:
    assert window is not None
    return total(window.active), total(window.pending)


def recent(window: Window | None) -> list[tuple[int | None, int, int]]:
    assert window is not None
    return [(each.number, total(each.active), total(each.pending)) for each in window.recent]


async def test_a_window_has_what_was_answered_since_its_first_read() -> None:
    nodes = Nodes()
    nodes.answer(1000, 10)
    assert totals(await nodes.read(FIRST)) == (0, 0)
    nodes.answer(90, 10)
    assert totals(await nodes.read(FIRST)) == (90, 10)


async def test_a_change_of_the_weights_begins_a_window() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(90, 10)
    await nodes.read(FIRST)
    nodes.answer(50, 50)
    assert totals(await nodes.read(SECOND)) == (50, 50)


async def test_without_traffic_of_the_active_cluster_the_requests_of_its_last_step_are_compared_with() -> (
    None
):
    nodes = Nodes()
    nodes.answer(1000, 0)
    await nodes.read(FIRST)
    nodes.answer(300, 300)
    await nodes.read(FIRST)
    nodes.answer(0, 80)
    await nodes.read(SECOND, is_whole=True)
    nodes.answer(1, 80)  # one was still in flight
    assert totals(await nodes.read(SECOND, is_whole=True)) == (301, 160)


async def test_after_a_restart_they_are_all_that_the_active_cluster_has_counted() -> None:
    nodes = Nodes()
    nodes.answer(5000, 700)
    await nodes.read(FIRST, is_whole=True)
    nodes.answer(1, 80)
    assert totals(await nodes.read(FIRST, is_whole=True)) == (5001, 80)


async def test_what_was_read_while_the_weights_changed_belongs_to_neither_step() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(90, 10)
    nodes.moves = (SECOND, False)
    assert await nodes.read(FIRST) is None
    nodes.answer(50, 50)
    assert totals(await nodes.read(SECOND)) == (50, 50)


async def test_of_the_active_cluster_it_counts_where_all_traffic_moved() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(200, 200)
    await nodes.read(FIRST)
    nodes.answer(90, 10)
    nodes.moves = (SECOND, True)
    assert await nodes.read(FIRST) is None
    nodes.answer(0, 50)
    assert totals(await nodes.read(SECOND, is_whole=True)) == (290, 50)


async def test_nodes_are_read_again_after_their_age() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(90, 10)
    assert totals(await nodes.read(FIRST, seconds=windows.AGE - 0.1)) == (0, 0)
    assert totals(await nodes.read(FIRST, seconds=0.1)) == (90, 10)


async def test_what_is_forgotten_begins_again() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(90, 10)
    nodes.windows.forget("upgrade")
    nodes.windows.forget("another")
    assert totals(await nodes.read(FIRST)) == (0, 0)


async def test_a_window_begins_each_minute_and_the_last_ones_are_kept() -> None:
    nodes, found = Nodes(), None
    await nodes.read(FIRST)
    for _ in range(8):
        nodes.answer(9, 1)
        found = await nodes.read(FIRST, seconds=windows.RESTARTED_EVERY)
    assert recent(found) == [(number, 9 * (8 - number), 8 - number) for number in (3, 4, 5, 6, 7)]
    assert totals(found) == (72, 8)
    assert recent(await nodes.read(SECOND)) == []


async def test_no_window_begins_within_a_minute() -> None:
    nodes, found = Nodes(), None
    await nodes.read(FIRST)
    for _ in range(12):
        assert recent(found := await nodes.read(FIRST)) == [], (
            "59 s at most have passed before this read"
        )
    assert found is not None
    assert recent(await nodes.read(FIRST)) == [(1, 0, 0)]


async def test_windows_of_a_bake_compare_with_the_requests_of_the_step_before() -> None:
    nodes, found = Nodes(), None
    await nodes.read(FIRST)
    nodes.answer(400, 400)
    await nodes.read(FIRST)
    for _ in range(3):
        nodes.answer(0, 100)
        found = await nodes.read(SECOND, is_whole=True, seconds=windows.RESTARTED_EVERY)
    assert recent(found) == [(1, 400, 100)]


async def test_requests_to_an_earlier_config_are_none_of_the_window_also_if_exported_late() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(90, 10)
    assert totals(await nodes.read(FIRST)) == (90, 10)
    nodes.config = "v3"
    assert await nodes.read(FIRST) is None
    nodes.answer(0, 7)  # answered before the change, and exported up to 10 s after it
    assert await nodes.read(FIRST) is None
    assert totals(await nodes.read(FIRST))[1] == 0
    nodes.answer(9, 1)
    assert totals(await nodes.read(FIRST))[1] == 1


async def test_a_read_that_began_with_an_earlier_config_counts_nothing() -> None:
    nodes = Nodes()
    await nodes.read(FIRST)
    nodes.answer(0, 50)
    nodes.edit = "v3"
    assert await nodes.read(FIRST) is None
    assert await nodes.read(FIRST, seconds=windows.EXPORT_INTERVAL) is not None
    nodes.answer(0, 1)
    assert totals(await nodes.read(FIRST))[1] == 1
