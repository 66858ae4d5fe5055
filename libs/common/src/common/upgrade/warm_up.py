"""Requests that a new cluster answers before any client's: models compile, load and fill caches at their first ones.

They go to the proxies of the cluster's own nodes, in turn, in the background. Each must be answered with 200; the first that is not ends the
warm-up, and no client is sent there. What was sent is forgotten with the process, which then begins again.
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


class _Run(msgspec.Struct):
    candidate: Candidate
    asked: WarmUp
    progress: WarmUpProgress
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
            run = self._runs[uid] = _Run(candidate=candidate, asked=asked, progress=progress)
            run.task = await self._background.start(self._run(progress, proxies, asked))
        return msgspec.structs.replace(run.progress)

    def forget(self, uid: str) -> None:
        """Drop what is known of a cluster's warm-up, and end it."""
        self._runs.pop(uid, None)

    async def _run(
        self, progress: WarmUpProgress, proxies: Sequence[Target], asked: WarmUp
    ) -> None:
        left = iter(range(progress.wanted))

        async def send() -> None:
            for number in left:
                if progress.problem is not None:
                    return
                try:
                    await self._serve.call(proxies[number % len(proxies)], asked.path)
                except errors.RaybusError as problem:
                    progress.problem = (
                        f"request {number + 1} of the warm-up was not answered: {problem}"
                    )
                    return
                progress.answered += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(min(asked.concurrency, progress.wanted)):
                group.create_task(send())
