"""What must never end is started again, unless it is cancelled or fails."""

import asyncio

import pytest

from common.runtime import process

pytestmark = pytest.mark.looptime


class Work:
    """Ends by a stray cancellation, or of itself, and then runs on."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.runs = 0
        self._ends = list(ends)

    async def __call__(self) -> None:
        self.runs += 1
        if not self._ends:
            await asyncio.Event().wait()
        if (end := self._ends.pop(0)) is not None:
            raise end


async def test_it_begins_again_after_a_stray_cancellation_and_an_end() -> None:
    work = Work(asyncio.CancelledError(), None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await process.keep("test", work)
    assert work.runs == 3


async def test_it_ends_when_it_is_cancelled() -> None:
    work = Work()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(process.keep("test", work))
        await asyncio.sleep(1)
        task.cancel()
    assert work.runs == 1


async def test_an_exception_passes() -> None:
    with pytest.raises(ValueError, match="broken"):
        await process.keep("test", Work(ValueError("broken")))
