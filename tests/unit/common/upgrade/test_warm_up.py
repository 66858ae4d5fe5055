"""Requests of a warm-up and reads of counters in the background, and the events that end them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import pytest

from common import errors
from common.ray.dashboard import Target
from common.runtime.background import Background
from common.upgrade import warm_up, windows
from common.upgrade.candidate import Candidate
from common.upgrade.policy import WarmUp
from common.upgrade.warm_up import WarmUps
from common.upgrade.windows import Windows
from support.fakes.clock import FakeClock

NODE: Final = Target(namespace="ns", name="head", ip="192.0.2.1", port=1)
Part = WarmUps | Windows


class Hanging:
    """Nodes that never answer."""

    def __init__(self) -> None:
        self.waiting = 0

    async def call(self, _proxy: Target, _path: str) -> None:
        await self._hang()

    async def metrics(self, _node: Target, _uid: str, _read: object) -> bytes | None:
        await self._hang()
        return None

    async def _hang(self) -> None:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1


def a_candidate(uid: str) -> Candidate:
    return Candidate(cluster_uid=uid, config="c")


def a_warm_up(
    nodes: Hanging, background: Background
) -> tuple[Part, Callable[[str], Awaitable[object]]]:
    found = WarmUps(cast("Any", nodes), background)
    return found, lambda uid: found.advance(a_candidate(uid), [NODE], WarmUp(requests=1))


def a_window(
    nodes: Hanging, background: Background
) -> tuple[Part, Callable[[str], Awaitable[object]]]:
    found = Windows(cast("Any", nodes), background, FakeClock())
    return found, lambda uid: found.read_window(a_candidate(uid), {}, {"pod": NODE})


@pytest.mark.parametrize("make", [a_warm_up, a_window])
async def test_what_is_under_way_ends_with_what_is_remembered(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (warm_up, windows):
        monkeypatch.setattr(module, "REMEMBERED", 2)
    nodes, background = Hanging(), Background()
    part, begin = make(nodes, background)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(background.run())
        await asyncio.sleep(0)
        for uid in ("a", "b"):
            await begin(uid)
        assert await counted(nodes) == 2
        await begin("c")
        assert await counted(nodes) == 2
        part.forget("b")
        assert await counted(nodes) == 1
        part.forget("c")
        assert await counted(nodes) == 0
        running.cancel()


class Answers:
    """A node with predetermined answers, and good ones after these."""

    def __init__(self, *answers: errors.RaybusError | None) -> None:
        self.left = list(answers)
        self.calls = 0

    async def call(self, _proxy: Target, _path: str) -> None:
        self.calls += 1
        if self.left and (problem := self.left.pop(0)) is not None:
            raise problem


SLOW: Final = errors.Unanswered("no answer within 60 s")
WRONG: Final = errors.Unavailable("answered 500")


@pytest.mark.parametrize(
    ("answers", "calls", "problem"),
    [
        ([], 3, None),
        ([None, SLOW], 4, None),
        ([SLOW, None, SLOW], 5, None),
        ([SLOW, SLOW, SLOW], 3, "request 1 of the warm-up was not answered: no answer within 60 s"),
        ([None, WRONG], 2, "request 2 of the warm-up was not answered: answered 500"),
    ],
)
async def test_a_request_without_an_answer_is_sent_again_and_a_wrong_answer_is_final(
    answers: list[errors.RaybusError | None], calls: int, problem: str | None
) -> None:
    node = Answers(*answers)
    part = WarmUps(cast("Any", node), Background())
    progress = None
    for _ in range(warm_up.MAX_ROUNDS + 2):
        asked = WarmUp(requests=3, concurrency=1)
        progress = await part.advance(a_candidate("uid"), [NODE], asked)
    assert progress is not None
    assert (node.calls, progress.problem) == (calls, problem)
    assert progress.is_over == (problem is None)


async def counted(nodes: Hanging) -> int:
    """Return the number of requests in progress after all tasks have had a turn."""
    for _ in range(10):
        await asyncio.sleep(0)
    return nodes.waiting
