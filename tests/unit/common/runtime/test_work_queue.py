"""A key is processed at most once at a time, no request is lost, and failures back off."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Literal

import looptime
import pytest
from prometheus_client import REGISTRY

from common.observability.metrics import ReconcileMeter
from common.runtime.key import KeyPriority
from common.runtime.work_queue import COALESCED, KNOWN_IN_A_ROW, WorkQueue

pytestmark = pytest.mark.looptime


def in_one_group(_key: str) -> Hashable:
    return None


def a_queue(
    *,
    group_of: Callable[[str], Hashable] = in_one_group,
    size_of: Callable[[str], int] = lambda _key: 1,
    is_steady: Callable[[str], bool] = lambda _key: False,
    meter: ReconcileMeter | None = None,
) -> WorkQueue[str]:
    meter = meter or ReconcileMeter("test")
    return WorkQueue(
        group_of=group_of, rank=lambda key: KeyPriority(size_of(key), is_steady(key)), meter=meter
    )


async def test_a_key_asked_for_twice_is_taken_once() -> None:
    queue = a_queue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_enqueued_in_work_is_taken_once_more_after_it() -> None:
    queue = a_queue()
    queue.add("a")
    key = await queue.take()
    queue.add(key)
    queue.add(key)
    assert len(queue) == 0
    queue.done(key)
    assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_promised_reconcile_comes_at_its_time() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    queue.add_at("a", loop.time() + 30)
    assert await queue.take() == "a"
    assert loop.time() == pytest.approx(30)


async def test_the_earlier_of_two_promises_counts() -> None:
    loop = asyncio.get_running_loop()
    queue = a_queue()
    queue.add_at("a", loop.time() + 30)
    queue.add_at("a", loop.time() + 5)
    queue.add_at("a", loop.time() + 60)
    assert await queue.take() == "a"
    assert loop.time() == pytest.approx(5)
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.take()


async def test_failures_wait_longer_each_time_and_a_success_forgets_them() -> None:
    queue = a_queue()
    waits: list[float] = []
    queue.add("a")
    for _ in range(4):
        key = await queue.take()
        waits.append(queue.retry(key))
    assert waits == [0.005, 0.01, 0.02, 0.04]
    queue.done(await queue.take())
    assert queue.count_failures("a") == 0


async def test_a_failed_key_that_was_enqueued_meanwhile_is_reconciled_at_once() -> None:
    queue = a_queue()
    queue.add("a")
    key = await queue.take()
    queue.add(key)
    queue.retry(key, after=20)
    async with asyncio.timeout(1):
        assert await queue.take() == "a"


def test_looptime_is_what_runs_these_tests() -> None:
    assert looptime is not None


async def test_groups_take_turns() -> None:
    queue = a_queue(group_of=lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(key)
    assert [await queue.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_what_was_created_first_is_finished_first_but_not_for_ever() -> None:
    queue = a_queue()
    queue.add("new", is_new=True)
    added = [f"known-{number}" for number in range(KNOWN_IN_A_ROW + 2)]
    for key in added:
        queue.add(key)
    await asyncio.sleep(COALESCED)
    taken: list[str] = []
    for _ in range(len(added) + 1):
        taken.append(await queue.take())
        queue.done(taken[-1])
    assert taken.index("new") == KNOWN_IN_A_ROW
    assert sorted(taken) == [*added, "new"]


async def test_changes_of_a_known_key_are_gathered_while_new_keys_wait() -> None:
    queue = a_queue()
    queue.add("known")
    for number in range(3):
        queue.add(f"new-{number}", is_new=True)
    assert await queue.take() == "new-0"
    await asyncio.sleep(COALESCED)
    assert await queue.take() == "known"
    queue.add("later")
    assert {await queue.take(), await queue.take()} == {"new-1", "new-2"}
    assert await queue.take() == "later", "at once, where no new key waits"


async def test_known_keys_that_take_long_hold_up_no_new_one() -> None:
    queue = a_queue()
    for number in range(4):
        queue.add(f"large-{number}")
        queue.add(f"new-{number}", is_new=True)
    await asyncio.sleep(COALESCED)
    assert [await queue.take() for _ in range(4)] == ["large-0", "new-0", "large-1", "new-3"]
    queue.done("new-0")
    assert await queue.take() == "new-1"
    queue.done("large-0")
    assert await queue.take() == "large-2"


async def test_what_was_at_rest_waits_in_a_lane_of_its_own() -> None:
    queue = a_queue(group_of=lambda key: key[0], is_steady=lambda key: "rested" in key)
    for number in range(3):
        queue.add(f"new{number}", is_new=True)
    for key in ("a-rested-1", "a-rested-2", "b-rested"):
        queue.add(key)

    assert [await queue.take_steady() for _ in range(3)] == ["a-rested-1", "b-rested", "a-rested-2"]
    assert len(queue) == 3
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await queue.take_steady()
    assert {await queue.take() for _ in range(3)} == {"new0", "new1", "new2"}


async def test_a_waiter_for_keys_at_rest_is_notified_by_nothing_else() -> None:
    queue = a_queue(is_steady=lambda key: key == "rested")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.take_steady())
        await asyncio.sleep(1)
        queue.add("other")
        queue.add_at("later", asyncio.get_running_loop().time() + 5)
        await asyncio.sleep(10)
        assert not waiting.done()
        queue.add("rested")
    assert waiting.result() == "rested"


async def test_a_key_is_in_work_once_whichever_lane_it_waits_in() -> None:
    at_rest = {"key"}
    queue = a_queue(is_steady=lambda key: key in at_rest)
    queue.add("key")
    assert await queue.take_steady() == "key"
    at_rest.clear()
    queue.add("key")
    assert len(queue) == 0
    queue.done("key")
    assert await queue.take() == "key"


async def test_keys_of_timers_hold_up_no_new_key_for_ever() -> None:
    queue = a_queue()
    keys = [f"resync-{number}" for number in range(100)]
    for key in keys:
        queue.add(key)
        queue.done(await queue.take(), requeue_at=asyncio.get_running_loop().time() + 60)
    await asyncio.sleep(61)
    queue.add("new", is_new=True)
    taken: list[str] = []
    while "new" not in taken:
        taken.append(await queue.take())
        queue.done(taken[-1])
    assert len(taken) <= KNOWN_IN_A_ROW + 1


async def test_a_key_after_many_other_keys_does_not_wait_for_them() -> None:
    queue = a_queue()
    for number in range(100):
        queue.add(f"bulk-{number:02}", is_new=True)
    assert await queue.take() == "bulk-00"
    queue.add("late", is_new=True)
    assert [await queue.take() for _ in range(4)] == ["late", "bulk-01", "bulk-99", "bulk-02"]


async def test_a_small_source_does_not_wait_for_a_growing_backlog() -> None:
    sizes = {"little": 1, "huge": 500}
    queue = a_queue(size_of=lambda key: sizes.get(key, 3))
    queue.add("huge", is_new=True)
    for number in range(50):
        queue.add(f"bulk-{number:02}", is_new=True)
    queue.add("little", is_new=True)
    for number in range(50, 100):
        queue.add(f"bulk-{number:02}", is_new=True)
    assert [await queue.take() for _ in range(4)] == ["huge", "little", "bulk-00", "bulk-99"]


async def test_no_key_of_a_backlog_starves() -> None:
    sizes = {"huge": 500}
    queue = a_queue(size_of=lambda key: sizes.get(key, 1))
    background = [f"bulk-{number}" for number in range(9)]
    for key in [*background[:3], "huge", *background[3:]]:
        queue.add(key, is_new=True)
    taken = [await queue.take() for _ in range(10)]
    assert taken.index("huge") == 6
    assert sorted(taken) == sorted(["huge", *background])


def reported() -> list[float]:
    """Return the number of keys that were added, waited and were processed, and the sum of their
    seconds.
    """
    parts = ("adds_total", "queue_duration_seconds_count", "queue_duration_seconds_sum")
    parts += ("work_duration_seconds_count", "work_duration_seconds_sum")
    held = {"name": "metered", "controller": "metered"}
    return [REGISTRY.get_sample_value(f"workqueue_{each}", held) or 0 for each in parts]


async def test_a_queue_reports_how_long_keys_wait_and_work() -> None:
    queue = a_queue(meter=ReconcileMeter("metered"))
    assert (queue.get_longest_wait(), queue.get_running_times()) == (0, [])
    queue.add("a")
    queue.add("a")
    await asyncio.sleep(2)
    assert (queue.get_longest_wait(), reported()) == (2, [1, 0, 0, 0, 0])
    key = await queue.take()
    assert reported() == [1, 1, 2, 0, 0]
    await asyncio.sleep(3)
    queue.add(key)  # waits from now on, though it can only be taken after its reconcile
    await asyncio.sleep(1)
    assert (queue.get_longest_wait(), queue.get_running_times()) == (0, [4])
    assert reported() == [2, 1, 2, 0, 0]
    queue.done(key)
    assert reported() == [2, 1, 2, 1, 4]
    assert await queue.take() == "a"
    assert reported() == [2, 2, 3, 1, 4]


async def test_workers_of_idle_groups_take_no_second_key_of_a_group() -> None:
    queue = a_queue(group_of=lambda key: key[0])
    for key in ("a1", "a2", "b1"):
        queue.add(key)
    assert [await queue.take_of_idle_group(), await queue.take_of_idle_group()] == ["a1", "b1"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await queue.take_of_idle_group()
    assert await queue.take() == "a2"


async def test_workers_of_idle_groups_take_a_key_once_its_group_is_idle_or_its_time_has_come() -> (
    None
):
    loop = asyncio.get_running_loop()
    queue = a_queue(group_of=lambda key: key[0])
    queue.add("a1")
    queue.add("a2")
    await queue.take_of_idle_group()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.take_of_idle_group())
        await asyncio.sleep(1)
        assert not waiting.done()
        queue.done("a1", requeue_at=loop.time() + 30)
    assert waiting.result() == "a2"
    queue.done("a2")
    assert await queue.take_of_idle_group() == "a1"
    assert loop.time() == pytest.approx(31)


async def test_workers_of_idle_groups_take_what_had_reached_its_goal() -> None:
    queue = a_queue(group_of=lambda key: key[0], is_steady=lambda _key: True)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.take_of_idle_group())
        await asyncio.sleep(1)
        queue.add("a1")
    assert waiting.result() == "a1"


async def test_a_key_notifies_one_worker_and_is_left_to_another_if_that_one_is_cancelled() -> None:
    queue, taken = a_queue(), list[str]()

    async def work(name: str) -> None:
        taken.append(f"{name} {await queue.take()}")

    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(work(name)) for name in ("first", "second"))
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        await asyncio.sleep(0.1)
        assert taken == ["second a"]
    assert second.done()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Semaphore]:
    """Return the list that records each time a worker was about to wait."""
    acquire, waits = asyncio.Semaphore.acquire, list[asyncio.Semaphore]()

    async def counted(workers: asyncio.Semaphore) -> Literal[True]:
        waits.append(workers)
        return await acquire(workers)

    monkeypatch.setattr(asyncio.Semaphore, "acquire", counted)
    return waits


async def test_idle_workers_wait_on_while_one_takes_a_key(waits: list[asyncio.Semaphore]) -> None:
    queue = a_queue()
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(queue.take()) for _ in range(50)]
        await asyncio.sleep(0)
        queue.add("a")
        await asyncio.sleep(0.1)
        assert (len(waits), sum(each.done() for each in workers)) == (50, 1)
        for each in workers:
            each.cancel()


async def test_keys_that_came_while_all_workers_were_busy_release_nobody_later(
    waits: list[asyncio.Semaphore],
) -> None:
    queue = a_queue(group_of=lambda key: key)
    for number in range(1000):
        queue.add(f"{number}")
    for _ in range(1000):
        queue.done(await queue.take())
    async with asyncio.TaskGroup() as group:
        idle = [group.create_task(take()) for take in (queue.take, queue.take_of_idle_group)]
        await asyncio.sleep(0.1)
        assert len(waits) <= 2 * len(idle), (
            "each finds once that the key it was released for is taken"
        )
        for each in idle:
            each.cancel()
