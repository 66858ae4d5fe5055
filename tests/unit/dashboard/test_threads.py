"""Threads for the event loop: namespaces take turns, however long one of them computes."""

import asyncio
import threading
from functools import partial

import pytest

from raybus_dashboard.threads import FairThreads


async def test_a_namespace_waits_for_one_computation_of_another() -> None:
    threads, gate, order = FairThreads(1), threading.Event(), list[str]()

    async def run(name: str) -> None:
        await threads.run(name.partition("/")[0], partial(order.append, name))

    async with asyncio.TaskGroup() as group:
        group.create_task(threads.run("a", gate.wait))
        for name in ("a/1", "a/2", "a/3", "b/1", "c/1", "b/2"):
            group.create_task(run(name))
        await asyncio.sleep(0)
        gate.set()
    assert order == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]
    threads.close()


async def test_a_namespace_occupies_one_thread() -> None:
    threads, gate, order = FairThreads(2), threading.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        group.create_task(threads.run("a", gate.wait))
        group.create_task(threads.run("a", partial(order.append, "a")))
        await threads.run("b", partial(order.append, "b"))
        assert order == ["b"]
        gate.set()
    assert order == ["b", "a"]
    threads.close()


async def test_a_caller_that_leaves_takes_no_turn_from_others() -> None:
    threads, gate, order = FairThreads(1), threading.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(threads.run("a", gate.wait))
        waiting = group.create_task(threads.run("b", partial(order.append, "b")))
        last = group.create_task(threads.run("c", partial(order.append, "c")))
        await asyncio.sleep(0)
        running.cancel()
        waiting.cancel()
        await asyncio.sleep(0)
        assert order == []
        gate.set()
        await last
    assert order == ["c"]
    threads.close()


async def test_an_error_is_the_callers() -> None:
    threads = FairThreads(1)
    with pytest.raises(ZeroDivisionError):
        await threads.run("a", lambda: 1 // 0)
    assert await threads.run("a", lambda: 1) == 1
    threads.close()


async def test_nothing_begins_after_the_end() -> None:
    threads, gate = FairThreads(1), threading.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(threads.run("a", gate.wait))
        await asyncio.sleep(0)
        threads.close()
        gate.set()
        assert await running
    with pytest.raises(RuntimeError):
        await threads.run("a", lambda: 1)
