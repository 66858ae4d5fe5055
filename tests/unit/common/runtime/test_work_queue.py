"""A key is in work at most once, nothing that was asked for is lost, and failures back off."""

import asyncio

import looptime
import pytest

from common.runtime.work_queue import NEW_IN_A_ROW, WorkQueue

pytestmark = pytest.mark.looptime


async def test_a_key_asked_for_twice_is_taken_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_woken_in_work_is_taken_once_more_after_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.take()
    queue.add(key)
    queue.add(key)
    assert len(queue) == 0
    queue.done(key)
    assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_promised_look_comes_at_its_time() -> None:
    loop = asyncio.get_running_loop()
    queue: WorkQueue[str] = WorkQueue()
    queue.add_at("a", loop.time() + 30)
    assert await queue.take() == "a"
    assert loop.time() == pytest.approx(30)


async def test_the_earlier_of_two_promises_counts() -> None:
    loop = asyncio.get_running_loop()
    queue: WorkQueue[str] = WorkQueue()
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
    queue: WorkQueue[str] = WorkQueue()
    waits: list[float] = []
    queue.add("a")
    for _ in range(4):
        key = await queue.take()
        waits.append(queue.retry(key))
    assert waits == [0.005, 0.01, 0.02, 0.04]
    queue.done(await queue.take())
    assert queue.failures("a") == 0


async def test_a_failed_key_that_was_woken_meanwhile_is_looked_at_at_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.take()
    queue.add(key)
    queue.retry(key, after=20)
    async with asyncio.timeout(1):
        assert await queue.take() == "a"


def test_looptime_is_what_runs_these_tests() -> None:
    assert looptime is not None


async def test_groups_take_turns() -> None:
    queue: WorkQueue[str] = WorkQueue(group_of=lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(key)
    assert [await queue.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_what_is_new_goes_first_but_not_for_ever() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("known")
    news = [f"new-{number}" for number in range(NEW_IN_A_ROW + 2)]
    for key in news:
        queue.add(key, is_new=True)
    taken = [await queue.take() for _ in range(len(news) + 1)]
    assert taken.index("known") == NEW_IN_A_ROW
    assert sorted(taken) == ["known", *news]


async def test_what_was_at_rest_waits_in_a_lane_of_its_own() -> None:
    queue: WorkQueue[str] = WorkQueue(group_of=lambda key: key[0], rests=lambda key: "rested" in key)
    for number in range(3):
        queue.add(f"new{number}", is_new=True)
    for key in ("a-rested-1", "a-rested-2", "b-rested"):
        queue.add(key)

    assert [await queue.take_rested() for _ in range(3)] == ["a-rested-1", "b-rested", "a-rested-2"]
    assert len(queue) == 3
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await queue.take_rested()
    assert {await queue.take() for _ in range(3)} == {"new0", "new1", "new2"}


async def test_who_waits_for_what_was_at_rest_is_woken_by_nothing_else() -> None:
    queue: WorkQueue[str] = WorkQueue(rests=lambda key: key == "rested")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.take_rested())
        await asyncio.sleep(1)
        queue.add("other")
        queue.add_at("later", asyncio.get_running_loop().time() + 5)
        await asyncio.sleep(10)
        assert not waiting.done()
        queue.add("rested")
    assert waiting.result() == "rested"


async def test_a_key_is_in_work_once_whichever_lane_it_waits_in() -> None:
    at_rest = {"key"}
    queue: WorkQueue[str] = WorkQueue(rests=lambda key: key in at_rest)
    queue.add("key")
    assert await queue.take_rested() == "key"
    at_rest.clear()
    queue.add("key")
    assert len(queue) == 0
    queue.done("key")
    assert await queue.take() == "key"


async def test_a_timer_does_not_make_a_key_go_before_what_is_new() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("resync")
    queue.done(await queue.take(), look_again_at=asyncio.get_running_loop().time() + 60)
    await asyncio.sleep(61)
    queue.add("new", is_new=True)
    assert [await queue.take(), await queue.take()] == ["new", "resync"]


async def test_who_comes_after_a_crowd_does_not_wait_for_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for number in range(100):
        queue.add(f"crowd-{number:02}", is_new=True)
    assert await queue.take() == "crowd-00"
    queue.add("late", is_new=True)
    assert [await queue.take() for _ in range(4)] == ["late", "crowd-01", "crowd-99", "crowd-02"]


async def test_who_wants_little_does_not_wait_for_a_crowd_that_still_grows() -> None:
    sizes = {"little": 1, "huge": 500}
    queue: WorkQueue[str] = WorkQueue(size_of=lambda key: sizes.get(key, 3))
    queue.add("huge", is_new=True)
    for number in range(50):
        queue.add(f"crowd-{number:02}", is_new=True)
    queue.add("little", is_new=True)
    for number in range(50, 100):
        queue.add(f"crowd-{number:02}", is_new=True)
    assert [await queue.take() for _ in range(4)] == ["huge", "little", "crowd-00", "crowd-99"]


async def test_nobody_in_a_crowd_is_left_behind() -> None:
    sizes = {"huge": 500}
    queue: WorkQueue[str] = WorkQueue(size_of=lambda key: sizes.get(key, 1))
    crowd = [f"crowd-{number}" for number in range(9)]
    for key in [*crowd[:3], "huge", *crowd[3:]]:
        queue.add(key, is_new=True)
    taken = [await queue.take() for _ in range(10)]
    assert taken.index("huge") == 6
    assert sorted(taken) == sorted(["huge", *crowd])


class Told:
    """What a queue tells its meter."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def added(self) -> None:
        self.words.append("added")

    def waited(self, seconds: float) -> None:
        self.words.append(f"waited {seconds:g}")

    def worked(self, seconds: float) -> None:
        self.words.append(f"worked {seconds:g}")


async def test_a_queue_tells_how_long_keys_wait_and_work() -> None:
    meter = Told()
    queue: WorkQueue[str] = WorkQueue(meter=meter)
    assert (queue.longest_wait(), queue.under_way()) == (0, [])
    queue.add("a")
    queue.add("a")
    await asyncio.sleep(2)
    assert queue.longest_wait() == 2
    key = await queue.take()
    await asyncio.sleep(3)
    queue.add(key)  # waits from now on, though it can only be taken after its look
    await asyncio.sleep(1)
    assert (queue.longest_wait(), queue.under_way()) == (0, [4])
    queue.done(key)
    assert await queue.take() == "a"
    assert meter.words == ["added", "waited 2", "added", "worked 4", "waited 1"]
