"""Requests that a new cluster answers before any client's: models compile, load and fill caches at their first ones.

They go to the proxies of the cluster's own nodes, in turn, in the background. Each must be answered with 200; the first that is not ends the
warm-up, and no client is sent there. What was sent is forgotten with the process, which then begins again.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from common.ray.dashboard import Target
from common.ray.serve_api import ServeApi
from common.runtime.background import Background
from common.upgrade.policy import WarmUp, WarmUpProgress

REMEMBERED: Final = 1024


class _Run(msgspec.Struct):
    asked: WarmUp
    progress: WarmUpProgress
    task: asyncio.Task[None] | None = None


class WarmUps:
    """The warm-ups of the clusters that this replica upgrades to."""

    def __init__(self, serve: ServeApi, background: Background) -> None:
        self._serve = serve
        self._background = background
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        """By the uid of the cluster."""

    async def of(self, uid: str, proxies: Sequence[Target], asked: WarmUp) -> WarmUpProgress:
        """Return how far the warm-up of a cluster is; it begins with the first call that knows proxies, and anew when it was edited."""
        if uid in self._runs and self._runs[uid].asked != asked:
            self.forget(uid)
        if uid not in self._runs:
            if not proxies:
                return WarmUpProgress(wanted=asked.requests)
            progress = WarmUpProgress(wanted=max(asked.requests, len(proxies)))
            run = self._runs[uid] = _Run(asked=asked, progress=progress)
            run.task = await self._background.start(self._run(run.progress, proxies, asked))
            while len(self._runs) > REMEMBERED:
                self.forget(next(iter(self._runs)))
        return msgspec.structs.replace(self._runs[uid].progress)

    def forget(self, uid: str) -> None:
        """Drop what is known of a cluster's warm-up, and end it."""
        if (run := self._runs.pop(uid, None)) is not None and run.task is not None:
            run.task.cancel()

    async def _run(self, progress: WarmUpProgress, proxies: Sequence[Target], asked: WarmUp) -> None:
        left = iter(range(progress.wanted))

        async def send() -> None:
            for number in left:
                if progress.problem is not None:
                    return
                try:
                    await self._serve.call(proxies[number % len(proxies)], asked.path)
                except errors.RaybusError as problem:
                    progress.problem = f"request {number + 1} of the warm-up was not answered: {problem}"
                    return
                progress.answered += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(min(asked.concurrency, progress.wanted)):
                group.create_task(send())
