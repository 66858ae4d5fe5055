"""Warm up a new cluster: send it requests before any client's, so that models load and caches fill.

The requests are sent in the background to the proxies of the cluster's nodes in turn. If any answer
is not 200, the warm-up fails, and the cluster gets no traffic. A request without an answer is sent
again a few times, since the node or this process may have been slow. After a restart of the process
the warm-up begins again.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from common.ray.dashboard import Target
from common.ray.serve_api import ServeApi
from common.runtime.background import Background
from common.runtime.cache import BoundedDict
from common.upgrade.candidate import Candidate
from common.upgrade.policy import WarmUp, WarmUpProgress

REMEMBERED: Final = 1024
MAX_ROUNDS: Final = 3
"""Number of rounds with unanswered requests after which the warm-up fails."""


class _Run(msgspec.Struct):
    candidate: Candidate
    asked: WarmUp
    progress: WarmUpProgress
    left: list[int]
    """Numbers of the requests that are still to be sent; the last item is sent next."""
    rounds: int = 0
    """Number of rounds in which a request had no answer."""
    is_active: bool = False
    task: asyncio.Task[None] | None = None


class WarmUps:
    """The warm-ups of the pending clusters in the upgrades of this replica."""

    def __init__(self, serve: ServeApi, background: Background) -> None:
        self._serve = serve
        self._background = background
        self._runs = BoundedDict[str, _Run](
            max_entries=REMEMBERED, dropped=lambda run: run.task and run.task.cancel()
        )
        """The warm-up of each cluster, by its UID."""

    async def advance(
        self, candidate: Candidate, proxies: Sequence[Target], asked: WarmUp
    ) -> WarmUpProgress:
        """Return the progress of a cluster's warm-up; start it, or its next round, if due.

        The warm-up starts with the first call that has `proxies`. It starts again if the warm-up in
        the policy was edited or the cluster runs a different Serve config.
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
        """Cancel the warm-up of a cluster and drop its progress."""
        self._runs.pop(uid, None)

    async def _send_round(self, run: _Run, proxies: Sequence[Target]) -> None:
        """Send the remaining requests, until one fails or is not answered."""
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
