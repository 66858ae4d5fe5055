"""A loop that must never end survives a cancellation that nobody requested, but ends when it is
cancelled or fails.
"""

import asyncio

import pytest

from common.observability import tasks

pytestmark = pytest.mark.looptime


class Loop:
    """A loop that raises some errors, one in each turn, and then waits."""

    def __init__(self, *problems: BaseException) -> None:
        self.turns = 0
        self._problems = list(problems)

    async def run(self) -> None:
        while True:
            async with tasks.survive_stray_cancellation("test"):
                self.turns += 1
                if not self._problems:
                    await asyncio.Event().wait()
                raise self._problems.pop(0)


async def test_it_continues_after_a_stray_cancellation() -> None:
    loop = Loop(asyncio.CancelledError(), asyncio.CancelledError())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await loop.run()
    assert loop.turns == 3


async def test_stray_cancellations_without_end_leave_others_their_turn() -> None:
    loop = Loop(*(asyncio.CancelledError() for _ in range(1000)))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(loop.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert loop.turns < 10
        task.cancel()


async def test_it_ends_when_it_is_cancelled() -> None:
    loop = Loop()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(loop.run())
        await asyncio.sleep(1)
        task.cancel()
    assert loop.turns == 1


async def test_an_exception_passes() -> None:
    with pytest.raises(ValueError, match="broken"):
        await Loop(ValueError("broken")).run()
