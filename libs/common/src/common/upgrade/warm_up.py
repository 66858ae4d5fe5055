"""Requests that a new cluster answers before any client's: models compile, load and fill caches at their first ones.

They go to the proxies of the cluster's own nodes, in turn, in the background. Each must be answered
with 200; the first other answer ends the warm-up, and no client is sent there. A request without an
answer is sent again a few times: the node or this process may have been slow. What was sent is
forgotten with the process, which then begins again.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from common.ray.dashboard import Target
from common.ray.serve_api import ServeApi
from common.runtime.background import Background
from common.runtime.cache import Remembered
from common.upgrade.candidate import Candidate
from common.upgrade.policy import WarmUp, WarmUpProgress

REMEMBERED: Final = 1024
MAX_ROUNDS: Final = 3
"""Rounds of requests in which some got no answer; after so many the warm-up has failed."""


class _Run(msgspec.Struct):
    candidate: Candidate
    asked: WarmUp
    progress: WarmUpProgress
    left: list[int]
    """The numbers of the requests that were not answered yet, the next one last."""
    rounds: int = 0
    """Rounds in which a request got no answer."""
    is_active: bool = False
    task: asyncio.Task[None] | None = None


class WarmUps:
    """The warm-ups of the clusters that this replica upgrades to."""

    def __init__(self, serve: ServeApi, background: Background) -> None:
        self._serve = serve
        self._background = background
        self._runs = Remembered[str, _Run](
            most=REMEMBERED, dropped=lambda each: each.task and each.task.cancel()
        )
        """By the uid of the cluster."""

    async def of(
        self, candidate: Candidate, proxies: Sequence[Target], asked: WarmUp
    ) -> WarmUpProgress:
        """Return how far the warm-up of a cluster is.

        It begins with the first call that knows proxies, and anew when it was edited or the cluster runs another Serve config.
        """
        uid = candidate.cluster_uid
        run = self._runs.get(uid)
        if run is None or (run.candidate, run.asked) != (candidate, asked):
            self.forget(uid)
            if not proxies:
                return WarmUpProgress(wanted=asked.requests)
            progress = WarmUpProgress(wanted=max(asked.requests, len(proxies)))
            left = list(range(progress.wanted))[::-1]
            run = self._runs[uid] = _Run(
                candidate=candidate, asked=asked, progress=progress, left=left
            )
        if run.left and proxies and not run.is_active and run.progress.problem is None:
            run.is_active = True
            run.task = await self._background.start(self._send_round(run, proxies))
        return msgspec.structs.replace(run.progress)

    def forget(self, uid: str) -> None:
        """Drop what is known of a cluster's warm-up, and end it."""
        self._runs.pop(uid, None)

    async def _send_round(self, run: _Run, proxies: Sequence[Target]) -> None:
        """Send the requests that are left, until one fails."""
        progress, unanswered = run.progress, list[int]()

        async def send() -> None:
            while run.left and not unanswered and progress.problem is None:
                number = run.left.pop()
                try:
                    await self._serve.call(proxies[number % len(proxies)], run.asked.path)
                except errors.Unanswered as problem:
                    unanswered.append(number)
                    if run.rounds + 1 >= MAX_ROUNDS:
                        progress.problem = _failure(number, problem)
                except errors.RaybusError as problem:
                    progress.problem = _failure(number, problem)
                else:
                    progress.answered += 1

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(run.asked.concurrency, len(run.left))):
                    group.create_task(send())
        finally:
            run.left += unanswered
            run.rounds += bool(unanswered)
            run.is_active = False


def _failure(number: int, problem: errors.RaybusError) -> str:
    return f"request {number + 1} of the warm-up was not answered: {problem}"
