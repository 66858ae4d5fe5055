"""Reads that no reconcile waits for: an exception in one of them affects no other read, and does
not end the process.
"""

import asyncio

import pytest

from common.runtime.background import Background


async def _failing(ended: asyncio.Event) -> None:
    ended.set()
    raise RuntimeError("not foreseen")


async def _noting(ended: asyncio.Event) -> None:
    await asyncio.sleep(0)
    ended.set()


async def test_a_read_that_raises_ends_no_other_and_not_the_group() -> None:
    background, failed, noted = Background(), asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(background.run())  # noqa: TID251  (it is cancelled below)
    await asyncio.sleep(0)
    assert await background.start(_failing(failed)) is not None
    await failed.wait()
    await asyncio.sleep(0)
    assert await background.start(_noting(noted)) is not None
    await noted.wait()
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_without_a_group_a_read_is_ended_at_once_and_raises_nothing_either() -> None:
    failed = asyncio.Event()
    assert await Background().start(_failing(failed)) is None
    assert failed.is_set()


async def test_an_idle_one_reads_nothing() -> None:
    noted = asyncio.Event()
    assert await Background(idle=True).start(_noting(noted)) is None
    await asyncio.sleep(0)
    assert not noted.is_set()
